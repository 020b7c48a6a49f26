"""Assemble the report of a run folder: test predictions, examples, page."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from ips import training
from ips.annotations import check_annotations
from ips.cohort import Cohort, predict_cohort
from ips.errors import ConfigError, DataError, listed
from ips.inputs import bag_images, slide_finder
from ips.loading import load
from ips.localisation import Localisation
from ips.patches import PatchSource, SlideFinder
from ips.predictions import TestPredictions, read_predictions, write_predictions
from ips.predictor import Predictor
from ips.progress import progress_bar
from ips.report.examples import Picture, make_picture
from ips.report.page import ReportContent, write_page
from ips.training import RunFolder, build_data
from ips.training.data import Data
from ips.training.folder import TrainedModel
from ips.training.start import start_in_words


def write_run_report(
    run: str | Path | Predictor,
    *,
    labels: str | Path | None = None,
    out: str | Path | None = None,
    examples: int = 4,
    slides: str | Path | SlideFinder | None = None,
    annotations: str | Path | None = None,
    console: Console | None = None,
) -> Path:
    """Write an HTML page about a run: scores with intervals, confusion, calibration, examples.

    The predictions for the test images are stored in ``predictions.csv`` in the run folder. A
    second report of the same model reads them from there.

    Args:
        run: folder of a trained model; or a predictor, if ``labels`` and ``out`` are given.
        labels: CSV with other images and their correct classes, instead of the test images.
        out: HTML file to write; ``report.html`` in the run folder by default, or
            ``report-LABELS.html``.
        examples: number of images to show, each of the correct and of the wrong ones.
        slides: folder of the slides of feature files, see `ips.inputs.slide_finder`.
        annotations: folder of GeoJSON or ASAP XML files named like the images, which are drawn as
            contours; by default files beside the images.
        console: console for progress bars; none are shown by default.
    """
    outlines = None if annotations is None else Path(annotations)
    if outlines is not None:
        check_annotations(outlines, images=2 * examples)
    shown = Shown(examples, slides, outlines, console)
    if labels is not None:
        return _report_on_table(run, Path(labels), out, shown)
    if isinstance(run, Predictor):
        raise ConfigError(
            "a predictor has no test images: give a CSV with images and classes as labels"
        )
    run = Path(run)
    predictor = load(run)
    path = _checked(Path(out or run / "report.html"))
    if path.resolve().parent == run.resolve():
        with RunFolder(run).lock():
            return _write_report(run, predictor, path, shown)
    return _write_report(run, predictor, path, shown)


@dataclass(frozen=True)
class Shown:
    """What a report shows of example images; see `write_run_report`."""

    examples: int
    slides: str | Path | SlideFinder | None = None
    annotations: Path | None = None
    console: Console | None = None


def _write_report(run: Path, predictor: Predictor, path: Path, shown: Shown) -> Path:
    data = build_data(predictor.config)
    predictions = stored_predictions(run, predictor, data, shown.console)
    best, worst = predictions.best_and_worst(shown.examples)
    found = {
        "weights": RunFolder(run).model_epoch(),
        "begun": start_in_words(RunFolder(run).start),
    }
    content = ReportContent(
        name=run.resolve().name,
        config=predictor.config,
        model=predictor.net.describe() | {key: str(value) for key, value in found.items() if value},
        parameters=sum(p.numel() for p in predictor.net.parameters()),
        train_images=len(data.train),
        log=RunFolder(run).metrics,
        predictions=predictions,
        best=best,
        worst=worst,
        pictures=_pictures(
            predictor,
            lambda number: data.open_predicted("test", number),
            [*best, *worst],
            [],
            shown,
        ),
        patch_classes=predictor.patch_classes,
        localisation=_localisation(RunFolder(run).test),
    )
    write_page(path, content)
    return path


def _report_on_table(
    run: str | Path | Predictor,
    table: Path,
    out: str | Path | None,
    shown: Shown,
) -> Path:
    if isinstance(run, Predictor):
        predictor, name = run, type(run.net).__name__
        if out is None:
            raise ConfigError("a predictor has no run folder: give an HTML file as out")
        path = _checked(Path(out))
    else:
        predictor, name = load(run), Path(run).resolve().name
        path = _checked(Path(out or Path(run) / f"report-{table.stem}.html"))
    cohort = predict_cohort(
        predictor, table, csv=path.with_suffix(".csv"), split=_split(run), console=shown.console
    )
    if cohort.failed:
        raise DataError(
            f"{next(iter(cohort.failed.values()))} ({len(cohort.failed)} images could not be "
            "predicted: ips evaluate --data leaves such images out)"
        )
    write_page(path, cohort_content(predictor, name, table, cohort, shown))
    return path


def _split(run: str | Path | Predictor) -> Path | None:
    return None if isinstance(run, Predictor) else RunFolder(Path(run)).split


def cohort_content(
    predictor: Predictor,
    name: str,
    table: Path,
    cohort: Cohort,
    shown: Shown,
) -> ReportContent:
    """What a report shows about images outside of a training."""
    best, worst = cohort.predictions.best_and_worst(shown.examples)
    opened = [partial(predictor.open, bag_images(*bag), name=bag[0]) for bag in cohort.bags.items()]
    notes = list(cohort.notes)
    if cohort.failed:
        count = len(cohort.failed) + len(cohort.bags)
        names = listed([Path(image).name for image in cohort.failed])
        notes.append(f"{len(cohort.failed)} of {count} images could not be predicted: {names}")
    return ReportContent(
        name=name,
        config=predictor.config,
        model=predictor.net.describe(),
        parameters=sum(p.numel() for p in predictor.net.parameters()),
        train_images=None,
        log=Path(os.devnull),  # not about the training
        predictions=cohort.predictions,
        best=best,
        worst=worst,
        pictures=_pictures(
            predictor,
            lambda number: opened[number](),
            [*best, *worst],
            [table],
            shown,
        ),
        patch_classes=predictor.patch_classes,
        data=table.name,
        resampled=cohort.resampled,
        notes=notes,
    )


def _checked(path: Path) -> Path:
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{path}: the report needs a file name that ends in .html")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: give a file name that ends in .html")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def stored_predictions(
    run: Path, predictor: Predictor, data: Data, console: Console | None
) -> TestPredictions:
    """The stored predictions if they are newer than model and data, else those of a new test."""
    stored, config = run / "predictions.csv", predictor.config
    tables = [value for _, value in config.data if isinstance(value, Path) and value.is_file()]
    changed = max(path.stat().st_mtime for path in (RunFolder(run).model, *tables))
    if stored.is_file() and stored.stat().st_mtime >= changed:
        predictions = read_predictions(stored, config)
        if predictions is not None and len(predictions.images) == data.predicted("test"):
            return predictions
    with RunFolder(run).lock():
        predictions = _test(run, predictor, data, console)
        write_predictions(stored, predictions)
    return predictions


def _test(run: Path, predictor: Predictor, data: Data, console: Console | None) -> TestPredictions:
    model = TrainedModel(predictor.net, predictor.config)
    return training.evaluate(run, model=model, console=console, data=data).predictions


def _localisation(path: Path) -> dict[str, Localisation]:
    """What the last test stored about the objects on its images, by task."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = {task: Localisation.from_dict(v.get("localisation")) for task, v in values.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return {task: result for task, result in found.items() if result is not None}


def _pictures(
    predictor: Predictor,
    open_image: Callable[[int], PatchSource],
    numbers: Sequence[int],
    tables: Sequence[Path],
    shown: Shown,
) -> dict[int, Picture]:
    """Pictures of some test images with their attention, one image in memory at a time."""
    pictures = {}
    finder = slide_finder(shown.slides, tables, predictor.config)
    with progress_bar(shown.console, transient=True) as bar:
        line = bar.add_task("examples", total=len(numbers), note="")
        for number in numbers:
            source = open_image(number).on_slide(finder)
            explanation = predictor.predict(
                source, progress=lambda done, _: bar.update(line, note=f"{done:,} patches")
            )
            explanation, _ = explanation.annotated(shown.annotations)
            pictures[number] = make_picture(explanation)
            source.close()
            bar.advance(line)
    return pictures
