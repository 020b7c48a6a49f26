"""Commands that apply a trained model: `ips predict`, `explain`, `report` and `view`."""

from __future__ import annotations

import json
import os
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ips import api
from ips.cli.app import app, err, hints, print_message, print_table
from ips.cli.options import (
    Annotations,
    Device,
    FeatureLevel,
    FeatureMpp,
    FeaturePatchSize,
    Images,
    OutFolder,
    Ray,
    Readers,
    RunFolder,
    Shard,
    SlidesFolder,
    Workers,
)
from ips.errors import ConfigError, IPSError
from ips.work import Place

if TYPE_CHECKING:  # torch would delay --help
    from ips.patches import SlideFinder
    from ips.tasks import Answer


@app.command()
def predict(
    run: RunFolder,
    images: Images,
    as_json: Annotated[bool, Option("--json", help="Print JSON instead of a table")] = False,
    csv: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write a CSV with a row for each image, instead of a table"),
    ] = None,
    labels: Annotated[
        Path | None,
        Option(metavar="FILE", help="CSV with paths or file names, and the correct classes"),
    ] = None,
    figures: Annotated[
        Path | None,
        Option(metavar="DIR", help="Output folder for a figure of the attention in each image"),
    ] = None,
    shard: Shard = None,
    ray: Ray = None,
    workers: Workers = None,
    readers: Readers = None,
    device: Device = "auto",
) -> None:
    """Predict the classes of images, and show the position of the most important patch.

    An image that cannot be read is reported and skipped; the exit code is then 1. After an
    interruption, the predictions made so far are printed; with --csv, the same command continues
    with the images that are not in the file yet. With --shard, every share writes a file of its
    own, such as predictions-2-of-8.csv; the command without --shard joins them.
    """
    place = Place.parse(shard=shard, ray=ray, workers=workers, readers=readers)
    if as_json and csv is not None:
        raise ConfigError("--json prints the predictions and --csv writes them: give one of them")
    errors = _Errors()
    if csv is not None:
        with hints():
            table = api.predict_csv(
                run,
                images,
                csv=csv,
                labels=labels,
                figures=figures,
                place=place,
                console=err,
                on_error=errors.report,
            )
        print_message(_summary(table))
        _print_purpose()
        errors.exit(table.images)
        return
    predictions: list[dict[str, Any]] = []
    try:
        found = api.predict(
            run,
            images,
            labels=labels,
            figures=figures,
            place=place,
            console=err,
            on_error=errors.report,
        )
        predictions.extend(prediction.as_dict() for prediction in found)
    finally:  # the predictions so far may have taken hours
        if as_json:
            typer.echo(json.dumps(predictions, indent=2))
        elif predictions:
            _print_predictions(predictions)
    errors.exit(len(predictions) + errors.count)


@app.command()
def explain(
    run: RunFolder,
    images: Images,
    out: OutFolder,
    top: Annotated[int, Option(min=1, max=200, help="Number of patches in the gallery")] = 24,
    all_patches: Annotated[
        bool,
        Option(
            "--all-patches", help="Write every patch to the GeoJSON, not only the selected ones"
        ),
    ] = False,
    task: Annotated[
        str | None,
        Option(help="Task whose attention the TIFF shows; the mean over tasks by default"),
    ] = None,
    no_crop: Annotated[
        bool,
        Option(
            "--no-crop",
            help="Place the origin of GeoJSON and TIFF at the corner of the whole slide; by "
            "default at the corner of its scanned area, as in QuPath",
        ),
    ] = False,
    map_coordinates: Annotated[
        bool,
        Option(
            "--map-coordinates",
            help="Write the GeoJSON of a GeoTIFF in its map coordinates instead of pixels",
        ),
    ] = False,
    slides: SlidesFolder = None,
    patch_size: FeaturePatchSize = None,
    level: FeatureLevel = None,
    mpp: FeatureMpp = None,
    annotations: Annotations = None,
    shard: Shard = None,
    ray: Ray = None,
    workers: Workers = None,
    readers: Readers = None,
    device: Device = "auto",
) -> None:
    """Write the attention of every patch as figures, CSV, GeoJSON and TIFF.

    For each image: an overlay of the attention per task and its mean (-overlay.png), a closer look
    at the region with the most attention of a large image (-closeup.png), the patches
    with the most attention (-gallery.png), the classes of the selected patches, if the model has a
    patch-level head (-classes.png), a table of all patches (-patches.csv), outlines for QuPath
    (.geojson), and a pyramid for slide viewers (-map.tif). An image that cannot be read is
    reported and skipped; the exit code is then 1.
    """
    place = Place.parse(shard=shard, ray=ray, workers=workers, readers=readers)
    rows, errors = [], _Errors()
    found = api.explain(
        run,
        images,
        out=out,
        top=top,
        all_patches=all_patches,
        task=task,
        crop=not no_crop,
        map_coordinates=map_coordinates,
        slides=_finder(slides, patch_size, level, mpp),
        annotations=annotations,
        place=place,
        console=err,
        on_error=errors.report,
    )
    try:
        for image in found:
            files = f"{out / image.stem}*"
            rows.append([image.image, image.answer, files])
            for note in [f"{image.image}: {image.attention}", *image.notes]:
                print_message(note)
    finally:  # the explanations so far may have taken hours
        if rows:
            print_table(["image", "prediction", "files"], rows)
    errors.exit(len(rows) + errors.count)


@app.command()
def report(
    run: RunFolder,
    labels: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="CSV with other images and their classes, instead of the test images",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="HTML file to write; RUN/report.html or RUN/report-LABELS.html by default",
        ),
    ] = None,
    examples: Annotated[
        int, Option(min=1, max=20, help="Number of correct test images to show, and of wrong ones")
    ] = 4,
    slides: SlidesFolder = None,
    patch_size: FeaturePatchSize = None,
    level: FeatureLevel = None,
    mpp: FeatureMpp = None,
    annotations: Annotations = None,
) -> None:
    """Write an HTML report of a run: scores, confusion matrices, calibration, examples.

    The predictions for the test images are kept in RUN/predictions.csv, so that another report of
    the same model is fast.
    """
    path = api.report(
        run,
        labels=labels,
        out=out,
        examples=examples,
        slides=_finder(slides, patch_size, level, mpp),
        annotations=annotations,
        console=err,
    )
    print_message(f"{path}: {path.stat().st_size / 2**20:.1f} MB")


@app.command()
def view(
    run: RunFolder,
    images: Annotated[
        list[Path],
        Argument(
            metavar="IMAGE",
            help="Image files or folders of images; feature files for a model trained on features",
        ),
    ],
    annotations: Annotations = None,
    labels: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="CSV with the true labels of the images; by default the table that the model was "
            "trained on",
        ),
    ] = None,
    slides: SlidesFolder = None,
    patch_size: FeaturePatchSize = None,
    level: FeatureLevel = None,
    mpp: FeatureMpp = None,
    port: Annotated[int, Option(min=0, max=65535, help="Port of the page; 0 picks a free one")] = 0,
    browser: Annotated[bool, Option(help="Open the page in a browser")] = True,
    device: Device = "auto",
) -> None:
    """Explore images in the browser, with predictions and attention of a trained model.

    The page can be reached only from this machine, and only by its full address. An image is
    predicted when it is opened on the page, or all are with its button "Predict all"; the results
    are kept in the run folder.
    """
    import torch

    # Leave one core for the web server.
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 2) - 1)))

    def on_ready(address: str) -> None:
        print_message(f"{address}  (stop with Ctrl-C)")
        if browser:
            webbrowser.open(address)

    try:
        api.view(
            run,
            images,
            annotations=annotations,
            labels=labels,
            slides=_finder(slides, patch_size, level, mpp),
            port=port,
            on_ready=on_ready,
        )
    except KeyboardInterrupt:
        print_message("stopped")


def _finder(
    slides: Path | None, patch_size: int | None, level: int | None, mpp: float | None
) -> SlideFinder:
    from ips.patches import SlideFinder

    return SlideFinder(slides, patch_size=patch_size, level=level, mpp=mpp)


class _Errors:
    """Errors of single images: printed as they occur, counted for the exit code."""

    def __init__(self) -> None:
        self.count = 0

    def report(self, error: IPSError) -> None:
        """Print and count an error."""
        self.count += 1
        print_message(f"ips: {error}")

    def exit(self, images: int) -> None:
        """Exit with code 1 if one of the images failed."""
        if self.count:
            if images > 1:
                print_message(f"{self.count} of {images} images could not be predicted")
            raise typer.Exit(1)


def _print_purpose() -> None:
    from ips.predictions import PURPOSE

    print_message(PURPOSE)


def _summary(table: api.PredictionTable) -> str:
    """What a CSV of predictions holds, in one line."""
    text = f"{table.path}: {table.images} images"
    if table.reused:
        text += f", {table.reused} of them predicted before"
    for task, (right, known) in table.right.items():
        if known:
            text += f"; {task}: {right} of {known} right ({right / known:.3f})"
    return text


def _print_predictions(predictions: list[dict[str, Any]]) -> None:
    rows = []
    for prediction in predictions:
        cells = [_cell(**task) for task in prediction["tasks"].values()]
        best, attention = prediction["kept"][0], prediction["attention"]
        place = f"{best['x']}, {best['y']}"
        ratio = f"{attention['times_even_share']:.1f}x"
        rows.append([prediction["image"], *cells, f"{prediction['patches']:,}", place, ratio])
        if attention["nearly_uniform"]:
            print_message(f"{prediction['image']}: attention is nearly uniform")
        if (screened := prediction.get("screened")) is not None:
            recall = "{value:.2f} ({low:.2f} to {high:.2f})".format(**screened["recall_attention"])
            print_message(
                f"{prediction['image']}: screened, recall {recall} of the attention: "
                f"{screened['scored']:,} of {prediction['patches']:,} patches scored"
            )
    places = ["patches", "top patch", "attention"]
    print_table(["image", *predictions[0]["tasks"], *places], rows)
    print_message(
        "top patch: x, y of its corner; attention: that of the top patch, in multiples of an even "
        "share (1 / number of patches)"
    )
    _print_purpose()


def _cell(
    answer: Answer,
    probabilities: dict[str, float] | None = None,
    truth: Answer | None = None,
    right: bool | None = None,
) -> str:
    text = _words(answer)
    if isinstance(answer, str) and probabilities is not None:
        text += f" ({probabilities[answer]:.2f})"
    if truth is not None and right is None:
        text += f" (truth: {_words(truth)})"
    elif truth is not None:
        text += " ✓" if right else f" ✗ {_words(truth)}"
    return text


def _words(answer: Answer) -> str:
    if isinstance(answer, float):
        return f"{answer:.4g}"
    return answer if isinstance(answer, str) else " ".join(answer) or "none"
