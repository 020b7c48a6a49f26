"""A trained run as one object: open an image, predict its classes, explain the prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ips.config import Config
from ips.config_io import parse_config
from ips.devices import pick_device
from ips.errors import ConfigError
from ips.explain import Explanation
from ips.explain.average import average_explanations, join_explanations
from ips.explain.maps import attention_from_prediction
from ips.files import absolute, fingerprint, split_address
from ips.images.colour import channels_of
from ips.models import Net, Prediction, ScoreTable
from ips.models.outputs import attention_from_logits
from ips.nn import Head
from ips.nn.weights_file import checksum
from ips.patches import ImageLike, JoinedPatches, PatchSource, sampled
from ips.scores import ScoreFile
from ips.tasks import Answer, Classification, build_tasks
from ips.training import open_source

# The scores of an image with this many patches are stored in a file until it is predicted.
_LARGE = 10_000

Progress = Callable[[int, int], None]
Images = list[Any] | tuple[ImageLike, ...]
"""Several images, such as those of a patient, as one bag."""


class Predictor:
    """A trained model with the configuration of its run.

    Args:
        net: trained model.
        config: configuration that it was trained with.
        run: run folder, where the scores of an interrupted prediction are stored.
        model_fingerprint: fingerprint of the weights; without it nothing is stored.
    """

    def __init__(
        self,
        net: Net,
        config: Config,
        *,
        run: Path | None = None,
        model_fingerprint: str | None = None,
    ) -> None:
        self.net, self.config = net.to(pick_device()).eval(), config
        self.tasks = build_tasks(config.tasks)
        channels = config.patches.channels or channels_of(config.encoder.inputs or 0)
        self._patches = config.patches.model_copy(update={"channels": channels})
        self._run = run if model_fingerprint is not None else None
        self._model_fingerprint = model_fingerprint

    @classmethod
    def from_net(
        cls,
        net: Net,
        *,
        tasks: Mapping[str, Sequence[str] | Mapping[str, Any]],
        patches: Mapping[str, Any],
        seed: int = 0,
    ) -> Predictor:
        """A predictor for a network that was trained in a loop of your own.

        Make another one after further training, because caches recognise a network by its weights.

        ::

            ips.Predictor.from_net(net, tasks={"grade": ["low", "high"]}, patches={"size": 64})

        Args:
            net: the network.
            tasks: class names of each task, in the order of its logits. The settings of a task that
                is not multiclass are given as in a config:
                ``{"kind": "binary", "names": ["normal", "tumor"]}``.
            patches: patch settings as in a config.
            seed: random seed of the order in which patches are visited.
        """
        readout = None if net.readout is None else net.readout.task
        values = {
            "tasks": {name: _task_settings(task) for name, task in tasks.items()},
            "patches": dict(patches),
            "train": {"seed": seed},
            "readout": readout,
        }
        config = parse_config(values, source="Predictor.from_net")
        if set(config.tasks) != set(net.tasks):
            raise ConfigError(
                f"Predictor.from_net: tasks {', '.join(config.tasks)}, but the network has "
                f"{', '.join(net.tasks)}: give class names for these"
            )
        for name, head in zip(net.tasks, net.heads, strict=True):
            expected = build_tasks(config.tasks)[name].outputs
            assert isinstance(head, Head)
            outputs = head[-1].out_features
            if outputs != expected:
                raise ConfigError(
                    f"Predictor.from_net: task {name} needs {expected} logits, but its head has "
                    f"{outputs}: name as many classes as the network has"
                )
        return cls(net, config, model_fingerprint=checksum(net.state_dict()))

    def __repr__(self) -> str:
        tasks = ", ".join(
            f"{name} ({', '.join(task.class_names[:3])}{', …' * (len(task.class_names) > 3)})"
            for name, task in self.tasks.items()
        )
        where = "" if self._run is None else f" {self._run}"
        net, size = type(self.net).__name__, self.config.patches.size
        return f"<Predictor{where}: {net} for {tasks}; patches of {size} px>"

    def __getstate__(self) -> dict[str, Any]:
        """Pickled without its device: another process uses its own."""
        return vars(self) | {"net": deepcopy(self.net).cpu()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.net.to(pick_device())

    def open(self, image: ImageLike | Images, *, name: str | None = None) -> PatchSource:
        """Open an image, or several as one bag, as the patches that the model chooses from.

        Args:
            image: file or pixels in memory, see `ips.open_patches`; or a list of them, such as the
                images of a patient.
            name: name of the bag of several; by default the names of its images.
        """
        if isinstance(image, list | tuple):
            images = [self.open(one) for one in image]
            return JoinedPatches(images, name=name or ", ".join(one.name for one in images))
        source = open_source(image, self._patches)
        source = sampled(source, self.config.patches.sample, seed=self.config.train.seed)
        return self.net.own_patches(source)

    def predict(
        self,
        image: ImageLike | PatchSource | Images,
        *,
        name: str | None = None,
        source: PatchSource | None = None,
        progress: Progress | None = None,
    ) -> Explanation:
        """Predict an image, or several as one bag, and explain the prediction.

        An interrupted prediction of a large file resumes when the same file is predicted again.
        With ``data.bags=average``, several images are predicted one by one, and the mean is
        returned.

        Args:
            image: image file, array, image of Pillow or tensor, see `ips.open_patches`; or patches;
                or a list of images, such as those of a patient.
            name: name of the bag of several images; by default the names of the images.
            source: patches of the image file, if they are open already.
            progress: callback that receives the number of patches scored so far, and that of all
                patches; the first call is made before any patch is scored.
        """
        if source is None:
            source = image if isinstance(image, PatchSource) else self.open(image, name=name)
        images = source.by_image()
        if self.config.bags != "average" or len(images) == 1:
            return self._predict(image, source, progress)
        given = image if isinstance(image, list | tuple) else images
        explanations, done, total = [], 0, len(source)
        for one, patches in zip(given, images, strict=True):
            report = progress and _after(progress, done, total)
            explanations.append(self._predict(one, patches, report))
            done += len(patches)
        joined = join_explanations(explanations, source)
        return replace(joined, title=self.title(joined))

    def _predict(
        self,
        image: ImageLike | PatchSource | Images,
        source: PatchSource,
        progress: Progress | None,
    ) -> Explanation:
        """Predict one bag; the scores of a large one are stored if ``image`` names its files."""
        source = self.net.own_patches(source)
        table = self.net.empty_table(source)
        files = _files(image)
        if self._run is not None and len(source) >= _LARGE and files is not None:
            with suppress(OSError):  # on a full or read-only disk, the scores stay in memory
                table = ScoreFile(self._score_file(files), *table.logits.shape)
        if (report := progress) is not None:
            total = len(source)
            table.progress = lambda done: report(done, total)
            report(0, total)
        seed = self.config.train.seed  # as in the test
        prediction = self.net.predict(source, load="lazy", seed=seed, table=table)
        explanation = self._explain(prediction, source, table)
        if isinstance(table, ScoreFile):
            with suppress(OSError):
                table.remove()
        return explanation

    def _explain(
        self, prediction: Prediction, source: PatchSource, table: ScoreTable
    ) -> Explanation:
        """The attention of all patches comes from their scores in ``table``.

        Methods that do not score patches before the selection (RPS, DeepMIL) have attention for
        their selected patches only, which are all patches for DeepMIL without ``select.keep``.
        """
        if self.net.scores_all_patches:
            attention = attention_from_logits(table.selectable()[0], self.net.tasks)
        else:
            attention = attention_from_prediction(prediction)
        return Explanation(
            **vars(prediction),
            source=source,
            all_attention=attention,
            class_probabilities={
                task: self.class_probabilities(task, p)
                for task, p in prediction.probabilities.items()
            },
            title=self.title(prediction),
            patch_classes=self.patch_classes,
            screened=self.net.screened(table),
        )

    def partial_scores(self, *images: str | Path) -> Path | None:
        """File with the scores of an interrupted prediction of a bag of these images, or of one.

        None if there is none.
        """
        files = [Path(image) for image in images]
        for some in [files, *([file] for file in files)]:
            with suppress(OSError):
                if self._run is not None and (path := self._score_file(some)).is_file():
                    return path
        return None

    def fingerprint(self, *images: Path) -> str:
        """Key for caches of a bag; changes with the model, the image files and the patches."""
        patches = self.config.patches.model_dump_json()
        keys: list[str] = []
        for image in images:
            facts = patches, absolute(image), self._model_fingerprint, *keys
            keys.append(fingerprint(split_address(image)[0], *facts))
        return keys[-1]

    def _score_file(self, images: Sequence[Path]) -> Path:
        assert self._run is not None
        return self._run / "unfinished" / f"{self.fingerprint(*images)}.scores"

    @property
    def patch_classes(self) -> list[str] | None:
        """Names of the classes of patches; None for a model without a patch-level head."""
        task = self.config.readout
        if task is None or self.net.readout is None:
            return None
        return self.tasks[task].class_names

    def answer(self, task: str, probabilities: Tensor) -> Answer:
        """Name of the predicted class, names of a multilabel task, or a number."""
        spec = self.tasks[task]
        return spec.answer(spec.class_probabilities(probabilities))

    def answers(self, prediction: Prediction) -> dict[str, Answer]:
        """The predicted class of each task, several of a multilabel task, or a number."""
        return {task: self.answer(task, p) for task, p in prediction.probabilities.items()}

    def label_name(self, task: str, label: Tensor) -> Answer | None:
        """Name of a label as `answer` words it; None if it is missing."""
        spec = self.tasks[task]
        if not spec.known(label[None]).all():
            return None
        return spec.truth(spec.targets(label[None])[0])

    def class_probabilities(self, task: str, probabilities: Tensor) -> dict[str, float]:
        """Probability of each class, by name; empty if the task has none, such as a regression."""
        spec = self.tasks[task]
        if not spec.has_probabilities:
            return {}
        values = spec.class_probabilities(probabilities.cpu().double()).tolist()
        return dict(zip(spec.class_names, values, strict=True))

    def title(self, prediction: Prediction, labels: Mapping[str, Tensor] | None = None) -> str:
        """Image name and predicted classes in one line, and whether they agree with ``labels``."""
        parts = []
        for name, probabilities in prediction.probabilities.items():
            predicted = _join(self.answer(name, probabilities))
            parts.append(f"{name}: {predicted}")
            label = None if labels is None else self.label_name(name, labels[name])
            if label is not None:
                truth = _join(label)
                if not isinstance(self.tasks[name], Classification):
                    parts[-1] += f" (truth: {truth})"
                else:
                    parts[-1] += " ✓" if predicted == truth else f" ✗ (truth: {truth})"
        return " · ".join([prediction.name, *parts])


def _task_settings(task: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a task; class names alone are those of a multiclass task."""
    settings: dict[str, Any] = {"names": list(task)}
    if isinstance(task, Mapping):
        settings = dict(task)
    if settings.get("names") is not None:
        settings.setdefault("classes", len(settings["names"]))
    return settings


def _join(answer: Answer) -> str:
    if isinstance(answer, float):
        return f"{answer:.4g}"
    return answer if isinstance(answer, str) else "+".join(answer) or "none"


class Ensemble(Predictor):
    """The models of a cross-validation as one: the mean of their probabilities and attention.

    Args:
        members: a predictor for every model.
    """

    def __init__(self, members: Sequence[Predictor]) -> None:
        first = members[0]
        keys = [member._model_fingerprint for member in members]
        key = None if None in keys else "-".join(map(str, keys))
        super().__init__(first.net, first.config, model_fingerprint=key)
        self.members = members

    def __repr__(self) -> str:
        return f"<Ensemble of {len(self.members)}: {self.members[0]!r}, …>"

    def predict(
        self,
        image: ImageLike | PatchSource | Images,
        *,
        name: str | None = None,
        source: PatchSource | None = None,
        progress: Progress | None = None,
    ) -> Explanation:
        """Predict an image, or several as one bag, with every model; see `Predictor.predict`."""
        if source is None:
            source = image if isinstance(image, PatchSource) else self.open(image, name=name)
        explanations = []
        for number, member in enumerate(self.members):
            report = progress and _part(progress, number, len(self.members))
            explanations.append(member.predict(image, source=source, progress=report))
        joined = average_explanations(explanations)
        return replace(joined, title=self.title(joined))

    def partial_scores(self, *images: str | Path) -> Path | None:
        """File with the scores of an interrupted prediction by any of the models."""
        found = (member.partial_scores(*images) for member in self.members)
        return next((path for path in found if path is not None), None)


def _files(image: ImageLike | PatchSource | Images) -> list[Path] | None:
    """The files of a bag; None if it is not given as files."""
    images = image if isinstance(image, list | tuple) else [image]
    files = [Path(one) for one in images if isinstance(one, str | Path)]
    return files if len(files) == len(images) else None


def _after(progress: Progress, before: int, total: int) -> Progress:
    """Progress of one of several images, with ``before`` patches in those before it."""
    return lambda done, _: progress(before + done, total)


def _part(progress: Progress, number: int, parts: int) -> Progress:
    """Progress of one of several passes over all patches."""
    return lambda done, total: progress(number * total + done, parts * total)
