"""Predict many images: with progress, into a CSV that can be continued, and with labels to score.

An image that cannot be read does not stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from rich.console import Console

from ips.config import TableConfig
from ips.errors import DataError, ImageError, IPSError, listed
from ips.explain import Explanation
from ips.explain.figures.attention import draw_attention
from ips.inputs import Bags, bag_files, bag_images, find_bags, read_groups, read_labels
from ips.prediction_file import PredictionFile
from ips.predictions import TaskPredictions, TestPredictions
from ips.predictor import Predictor
from ips.training.split_file import read_split
from ips.work import Place, Report, run

if TYPE_CHECKING:
    from torch import Tensor

    from ips.patches import PatchSource
    from ips.tasks import Answer

OnError = Callable[[IPSError], None]


def predict_all(
    predictor: Predictor,
    bags: Bags,
    *,
    figures: Mapping[str, Path] | None = None,
    place: Place | None = None,
    console: Console | None = None,
) -> Iterator[tuple[str, Explanation | IPSError]]:
    """Predict bags, and draw their figures; a bag that cannot be read yields its error.

    Args:
        figures: files of the figures, by bag.
        place: where to work; the bags are those of its share already.
    """
    figures = figures or {}
    items = {name: (name, files, figures.get(name)) for name, files in bags.items()}
    yield from run(
        _Prediction(predictor),
        items,
        place=place,
        gpu=True,
        console=console,
        unit="images",
        transient=True,
    )


@dataclass(frozen=True)
class _Prediction:
    """Predicts one bag and draws its figure: the work of `predict_all`, in any process."""

    predictor: Predictor

    def __call__(self, item: tuple[str, list[str], Path | None], report: Report) -> Explanation:
        name, files, figure = item
        found = predict_with(self.predictor, name, files, report)
        if figure is not None:
            draw_attention(figure, [found])
        return found


def predict_with(
    predictor: Predictor,
    name: str,
    files: list[str],
    report: Report,
    *,
    source: PatchSource | None = None,
) -> Explanation:
    """Predict a bag, whose patches may be open already.

    An interruption says where its scores are.
    """
    try:
        images = bag_images(name, files)
        return predictor.predict(images, name=name, source=source, progress=report)
    except KeyboardInterrupt:
        kept = predictor.partial_scores(*files)
        if kept is None:
            raise
        raise KeyboardInterrupt(
            f"the scores so far are in {kept.parent}: run the same command again to continue"
        ) from None


@dataclass(frozen=True)
class Filled:
    """How many images a file had already, and how many could not be predicted."""

    reused: int
    failed: int


def fill_table(
    table: PredictionFile,
    predictor: Predictor,
    bags: Bags,
    *,
    figures: Mapping[str, Path] | None = None,
    place: Place | None = None,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> Filled:
    """Predict the bags whose rows are missing, have an error or are out of date."""
    figures, failed = figures or {}, 0
    keys = {name: _fingerprint(predictor, files) for name, files in bags.items()}
    todo = {
        name: key
        for name, key in keys.items()
        if not table.is_done(name, key) or (name in figures and not figures[name].is_file())
    }
    rest = {name: bags[name] for name in todo}
    try:
        for name, found in predict_all(
            predictor, rest, figures=figures, place=place, console=console
        ):
            if isinstance(found, IPSError):
                failed += 1
                table.add_error(name, found)
                if on_error is not None:
                    on_error(found)
            else:
                answers = predictor.answers(found)
                table.add(name, found, answers=answers, fingerprint=todo[name])
                found.source.close()
    finally:  # also the rows before Ctrl-C
        table.write()
    return Filled(len(bags) - len(todo), failed)


def read_truth(
    predictor: Predictor, labels: Mapping[str, Mapping[str, Tensor]]
) -> dict[str, dict[str, Answer]]:
    """Correct answers of the images that have labels, by image and task."""
    truth: dict[str, dict[str, Answer]] = {}
    for name, found in labels.items():
        answers = {task: predictor.label_name(task, label) for task, label in found.items()}
        truth[name] = {task: answer for task, answer in answers.items() if answer is not None}
    return truth


@dataclass(frozen=True)
class Cohort:
    """Predictions for the labelled images of a table.

    Attributes:
        predictions: predictions for the tasks that the table has labels of, with groups.
        bags: files of the predicted bags, by name.
        failed: why other bags could not be predicted, by name.
        resampled: what intervals are computed over: a number of patients or groups, or of images.
        notes: sentences about the images.
    """

    predictions: TestPredictions
    bags: Bags
    failed: dict[str, str]
    resampled: str
    notes: list[str]


def predict_cohort(
    predictor: Predictor,
    table: Path,
    *,
    csv: Path,
    split: Path | None = None,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> Cohort:
    """Predict the images that a table has a label for; see `ips.inputs.read_labels`.

    Args:
        csv: file of the predictions, which the next call continues.
        split: file of the split in the run folder, to find images that the model was trained on.
        on_error: callback that receives the error of an image, in addition to its row.
    """
    every = find_bags([table], predictor.config)
    labels = read_labels(table, every, predictor.config)
    bags = {name: files for name, files in every.items() if labels[name]}
    images = list(bags)
    if not images:
        raise DataError(f"{table}: no image has a label: add some")
    groups = read_groups(table, bags, predictor.config)
    file = PredictionFile(csv, images, predictor.tasks, truth=read_truth(predictor, labels))
    fill_table(file, predictor, bags, console=console, on_error=on_error)
    failed = file.errors()
    if len(failed) == len(images):
        raise DataError(f"none of the {len(images)} images can be predicted: {failed[images[0]]}")
    known = groups or images
    group_of = dict(zip(images, known, strict=True))
    notes = [] if split is None else _trained_on(predictor, split, bag_files(bags), groups)
    images = [image for image in images if image not in failed]
    numbers = np.unique([group_of[image] for image in images], return_inverse=True)[1]
    columns = [file.columns(image) or {} for image in images]
    parts = []
    for task, spec in predictor.tasks.items():
        if not any(task in labels[image] for image in images):
            continue
        encoded = torch.stack([labels[image].get(task, spec.missing) for image in images])
        truth, has_label = spec.targets(encoded).numpy(), spec.known(encoded).numpy()
        rows = np.array([found[task] for found in columns])
        parts.append(TaskPredictions(task, spec, truth, rows, has_label, numbers))
    unit = "images" if groups is None else "patients or groups"
    names = [Path(image).name for image in images]
    resampled = f"{len(np.unique(numbers)):,} {unit}"
    done = {image: bags[image] for image in images}
    return Cohort(TestPredictions(names, parts), done, failed, resampled, notes)


def _trained_on(
    predictor: Predictor, split: Path, images: Sequence[str], groups: Sequence[str] | None
) -> list[str]:
    """A sentence if the model was trained on some of the images, or on others of their groups."""
    data = predictor.config.data
    if not isinstance(data, TableConfig) or not split.is_file():
        return []
    rows = [(name, group) for name, group, part in read_split(split) if part != "test"]
    root = data.root or data.csv.parent
    files = {(root / name).resolve() for name, _ in rows}
    members = {group for _, group in rows if group}
    seen = [image for image in images if Path(image).resolve() in files]
    if seen:
        return [
            f"{len(seen)} of {len(images)} images were used to train or choose the model, such as "
            f"{Path(seen[0]).name}, so the scores are too good"
        ]
    shared = sorted(members & {*(groups or ())})
    if shared:
        return [
            f"{len(shared)} patients or groups have the names of some in the training data "
            f"({listed(shared)}): if they are the same, the scores are too good"
        ]
    return []


def _fingerprint(predictor: Predictor, files: Sequence[str]) -> str:
    """The fingerprint of a bag; empty if a file cannot be found."""
    try:
        return predictor.fingerprint(*map(Path, files))
    except (OSError, ImageError):
        return ""
