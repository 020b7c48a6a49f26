"""Test the model of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from ips.config import Config, TableConfig, TrafficSignsConfig
from ips.config_io import override, parse_config
from ips.data.split import Split
from ips.errors import ConfigError
from ips.files import write_text
from ips.localisation import Localisation
from ips.predictions import TestPredictions, average_groups
from ips.progress import progress_bar
from ips.task_scores import TaskScores, task_scores
from ips.training import harness
from ips.training.batches import Batches
from ips.training.data import Data, build_data
from ips.training.folder import RunFolder, TrainedModel, load_model
from ips.training.localiser import Localiser
from ips.training.module import BatchObserver, Learner
from ips.training.processes import Processes
from ips.training.split_file import check_test_images


@dataclass(frozen=True)
class Evaluation:
    """The result of a test.

    Attributes:
        run: run folder.
        results: scores of each task, with their intervals and those of the majority answer.
        predictions: predictions for the test images.
        model: the model.
        localisation: for tasks with objects, how well attention agrees with them.
    """

    run: Path
    results: dict[str, TaskScores]
    predictions: TestPredictions
    model: TrainedModel
    localisation: dict[str, Localisation]

    @property
    def scores(self) -> dict[str, float | None]:
        """Score of each task, by its metric; None where it is undefined."""
        return {task: result.scores[0].value for task, result in self.results.items()}

    @property
    def undefined(self) -> dict[str, str]:
        """Why a score is undefined, such as "only class 0 in the test set"."""
        first = {task: result.scores[0] for task, result in self.results.items()}
        return {task: score.undefined for task, score in first.items() if score.value is None}

    @property
    def metrics(self) -> dict[str, str]:
        """Metric of each task: accuracy, exact-match or auc."""
        return {task: result.scores[0].key for task, result in self.results.items()}


def evaluate(
    run: str | Path,
    *,
    console: Console | None = None,
    model: TrainedModel | None = None,
    data: Data | None = None,
    progress: Progress | None = None,
    observer: BatchObserver | None = None,
    processes: Processes | None = None,
    settings: Sequence[str] = (),
) -> Evaluation:
    """Score the model of a run on its test images, and write ``test.json``.

    With several devices, all of their processes call this function, and only the first writes.

    Args:
        model: the model, if it is in memory already; otherwise that of the run is loaded.
        data: data sets, if they are built already.
        progress: progress display that gets a bar for this test, instead of ``console``.
        observer: callback that receives every batch, the model's output and its selection.
        processes: the processes that test together; one by default.
        settings: of the data, such as ``data.digits=data/mnist``, for a test on other drawn images
            than those of the run; its scores are not written.
    """
    folder, processes = RunFolder(Path(run)), processes or Processes()
    processes.check(devices="--devices")
    model = model or load_model(folder.path)
    console = console if processes.is_first else None
    with folder.lock(processes):
        if settings:
            model = replace(model, config=_with_other_images(model.config, settings))
        data = data or build_data(model.config)
        if not settings:
            check_test_images(folder.split, data)
        localiser = Localiser.for_data(model.net, data.test)
        learner = Learner(model.net, model.config, observer=observer, localiser=localiser)
        images = predict_split(learner, data, progress or progress_bar(console), processes)
        predictions = grouped(images, data, "test")
        results = {task.name: task_scores(task) for task in predictions.tasks}
        epoch = folder.model_epoch()
        origin = {} if epoch is None else {"model": asdict(epoch)}
        values = {name: result.as_dict() | origin for name, result in results.items()}
        located = {} if localiser is None else localiser.results(images)
        for name, localisation in located.items():
            values[name]["localisation"] = localisation.as_dict()
        if processes.is_first and not settings:
            write_text(folder.test, json.dumps(values, indent=2) + "\n")
    return Evaluation(folder.path, results, predictions, model, located)


def _with_other_images(config: Config, settings: Sequence[str]) -> Config:
    """The config with other settings of drawn images."""
    for setting in settings:
        if not setting.startswith("data.") or setting.startswith("data.kind="):
            raise ConfigError(
                f"--set {setting}: the model is trained, so only settings of its images can "
                "differ, such as data.digits"
            )
    if isinstance(config.data, TableConfig | TrafficSignsConfig):
        raise ConfigError(
            f"--set {settings[0]}: is for drawn images: for other files, use --data with a table"
        )
    values = override(config.model_dump(mode="json"), settings)
    return parse_config(values, source=f"--set {settings[0]}")


def predict_validation(
    model: TrainedModel, data: Data, *, console: Console | None = None
) -> TestPredictions:
    """The predictions of a model for the validation images."""
    learner = Learner(model.net, model.config)
    predictions = predict_split(learner, data, progress_bar(console), Processes(), "validation")
    return grouped(predictions, data, "validation")


def grouped(predictions: TestPredictions, data: Data, split: Split) -> TestPredictions:
    """The predictions for groups of images, if those of their images are averaged."""
    groups = data.averaged.get(split)
    return predictions if groups is None else average_groups(predictions, groups)


def predict_split(
    learner: Learner,
    data: Data,
    progress: Progress,
    processes: Processes,
    split: Split = "test",
) -> TestPredictions:
    """The predictions for the bags of a split."""
    harness.test(
        learner,
        Batches(learner.config, replace(data, test=data.split(split))),
        progress=progress,
        precision=learner.config.train.precision,
        processes=processes,
        strategy=learner.config.train.strategy,
    )
    return learner.collector.predictions()
