"""A trained model for people: give it a file, get an answer and where it was found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from ips.config import Config
from ips.explain import Explanation, attention_from_logits, attention_from_prediction
from ips.files import fingerprint
from ips.images import Image
from ips.models import Net, Prediction, ScoreTable
from ips.patches import PatchSource, sampled
from ips.patches.features import split_address
from ips.scores import ScoreFile
from ips.tasks import Task, build_tasks
from ips.training import RunFolder, load_model, open_source

# From this many patches on, what has been scored is kept in a file until the image is answered.
_LARGE = 10_000


class Predictor:
    """The model of a run, and how it was taught to cut an image into patches.

    Args:
        net: a trained model.
        config: that it was trained with.
        run: its folder; what an interrupted look at a very large image had found is kept there.
        stamp: fingerprint of the model file; without it nothing is cached.
    """

    def __init__(
        self,
        net: Net,
        config: Config,
        *,
        run: Path | None = None,
        stamp: str | None = None,
    ) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net, self.config, self.stamp = net.to(device).eval(), config, stamp
        self.tasks = build_tasks(config.tasks)
        self._run = run if stamp is not None else None

    def open(self, image: str | Path | Image) -> PatchSource:
        """Open an image as patches, as the model was trained on them."""
        source = open_source(image, self.config.patches)
        return sampled(source, self.config.patches.sample, seed=self.config.train.seed)

    def predict(
        self,
        image: str | Path | PatchSource,
        *,
        source: PatchSource | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Explanation:
        """Predict an image and explain the prediction.

        An interrupted prediction of a large file resumes when the same file is predicted again.

        Args:
            image: image file, or its patches.
            source: patches of the image file, if they are open already.
            progress: callback that receives the number of patches scored so far.
        """
        if source is None:
            source = self.open(image) if isinstance(image, str | Path) else image
        table = self.net.empty_table(source)
        if self._run is not None and len(source) >= _LARGE and isinstance(image, str | Path):
            with suppress(OSError):  # a disk that is full or read-only keeps nothing
                table = ScoreFile(self._score_file(Path(image)), *table.logits.shape)
        table.progress = progress
        seed = self.config.train.seed  # as in the test
        prediction = self.net.predict(source, load="lazy", seed=seed, table=table)
        explanation = self._explained(prediction, source, table)
        if isinstance(table, ScoreFile):
            with suppress(OSError):
                table.remove()
        return explanation

    def explain(
        self, image: str | Path | PatchSource, *, progress: Callable[[int], None] | None = None
    ) -> Explanation:
        """The same as `predict`: whoever asks for an answer gets its explanation with it."""
        return self.predict(image, progress=progress)

    def _explained(
        self, prediction: Prediction, source: PatchSource, table: ScoreTable
    ) -> Explanation:
        """The look at all patches told what each of them scores; that is not computed again.

        Methods that score no patch beforehand (RPS, DeepMIL) tell what the patches got that their
        answer rests on, all of them for DeepMIL without ``select.keep``.
        """
        if self.net.scores_all_patches:
            everywhere = attention_from_logits(table.selectable()[0], self.net.tasks)
        else:
            everywhere = attention_from_prediction(prediction)
        return Explanation(
            **vars(prediction),
            source=source,
            everywhere=everywhere,
            named={task: self.by_name(task, p) for task, p in prediction.probabilities.items()},
            title=self.title(prediction),
            names=self.readout_names,
        )

    def unfinished(self, image: str | Path) -> Path | None:
        """Where the scores of an interrupted look at ``image`` are; None if none are kept."""
        with suppress(OSError):
            if self._run is not None and (path := self._score_file(Path(image))).is_file():
                return path
        return None

    def fingerprint(self, image: Path) -> str:
        """Key for caches; changes with the model, the image file and the patch settings."""
        patches = self.config.patches.model_dump_json()
        return fingerprint(split_address(image)[0], patches, image.resolve(), self.stamp)

    def _score_file(self, image: Path) -> Path:
        assert self._run is not None
        return self._run / "unfinished" / f"{self.fingerprint(image)}.scores"

    @property
    def readout_names(self) -> list[str] | None:
        """What the classes of patches are called; None for a model without a read-out."""
        task = self.config.readout
        if task is None or self.net.readout is None:
            return None
        return self.tasks[task].class_names

    def answer(self, task: str, probabilities: Tensor) -> str | list[str]:
        """Name of the predicted class; of a multilabel task, names of the predicted labels."""
        spec = self.tasks[task]
        return _chosen(spec, spec.decide(spec.class_probabilities(probabilities)))

    def by_name(self, task: str, probabilities: Tensor) -> dict[str, float]:
        """Probability of each class, by its name."""
        spec = self.tasks[task]
        values = spec.class_probabilities(probabilities.double()).tolist()
        return dict(zip(spec.class_names, values, strict=True))

    def title(self, prediction: Prediction, labels: Mapping[str, Tensor] | None = None) -> str:
        """What is predicted, and where the truth is known whether that is right, in one line."""
        parts = []
        for task, probabilities in prediction.probabilities.items():
            said = _join(self.answer(task, probabilities))
            parts.append(f"{task} {said}")
            if labels is not None:
                spec = self.tasks[task]
                truth = _join(_chosen(spec, spec.one_hot(labels[task])))
                parts[-1] += " (right)" if said == truth else f" (true: {truth})"
        return f"{prediction.name}: {', '.join(parts)}"


def _chosen(task: Task, chosen: Tensor) -> str | list[str]:
    """Names of the classes that are True in ``(C,)``; a list only for a multilabel task."""
    names = [name for name, here in zip(task.class_names, chosen, strict=True) if here]
    return names if task.kind == "multilabel" else names[0]


def _join(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else "+".join(answer) or "none"


def load(run: str | Path) -> Predictor:
    """The predictor of a run folder.

    >>> predictor = load("runs/demo")  # doctest: +SKIP
    >>> predictor.predict("image.png").probabilities["majority"]  # doctest: +SKIP
    """
    stamp = None
    with suppress(OSError):  # before it is read: it may be replaced at any time
        stamp = fingerprint(RunFolder(Path(run)).model)
    model = load_model(Path(run))
    return Predictor(model.net, model.config, run=Path(run), stamp=stamp)
