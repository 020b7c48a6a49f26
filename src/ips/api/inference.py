"""Apply a trained model to images: predict, explain and view them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ips.annotations import check_annotations
from ips.errors import ConfigError, DataError, IPSError, require
from ips.explaining import ExplainedImage, Explaining
from ips.locks import lock_folder

if TYPE_CHECKING:
    from rich.console import Console

    from ips.explain import Explanation
    from ips.inputs import Bags
    from ips.patches import SlideFinder
    from ips.predictor import Predictor
    from ips.tasks import Answer
    from ips.work import Place

AnyPath = str | Path
OnError = Callable[[IPSError], None]


@dataclass(frozen=True)
class ImagePrediction:
    """Prediction for one image.

    Attributes:
        image: path of the image.
        answers: predicted class of each task; a list of classes for a multilabel task, the number
            of a regression, and the risk of survival.
        explanation: probabilities, kept patches, and the attention of all patches.
        truth: correct answers, as far as labels are given.
    """

    image: str
    answers: dict[str, Answer]
    explanation: Explanation
    truth: Mapping[str, Answer] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The prediction as plain values for JSON, patches with the most attention first."""
        from ips.predictions import PURPOSE

        explanation = self.explanation
        tasks: dict[str, dict[str, Any]] = {}
        for task, answer in self.answers.items():
            probabilities = explanation.class_probabilities[task]
            tasks[task] = {"answer": answer}
            if probabilities:
                tasks[task]["probabilities"] = probabilities
            if task in self.truth:
                tasks[task]["truth"] = self.truth[task]
                if not isinstance(answer, float):  # a number is neither right nor wrong
                    tasks[task]["right"] = self.truth[task] == answer
        return {
            "image": self.image,
            "purpose": PURPOSE,
            "tasks": tasks,
            "patches": explanation.patches,
            "patch_size": explanation.extent,
            **self._screened(),
            "attention": {
                "highest": explanation.spread.highest,
                "times_even_share": explanation.spread.ratio,
                "nearly_uniform": explanation.spread.uniform,
            },
            "kept": self._kept(),
        } | ({"images": self._images()} if len(explanation.source.parts) > 1 else {})

    def _images(self) -> list[dict[str, Any]]:
        """The images of a bag of several, at each magnification, with their share of attention."""
        pairs = zip(self.explanation.source.parts, self.explanation.shares, strict=True)
        return [
            {
                "image": part.name,
                "magnification": part.magnification,
                "patches": part.patches.stop - part.patches.start,
                "patch_size": part.extent,
                "attention": share,
            }
            for part, share in pairs
        ]

    def _kept(self) -> list[dict[str, Any]]:
        """The selected patches; ``image`` is a number in ``images``, if there are several."""
        explanation = self.explanation
        several = len(explanation.source.parts) > 1
        places = explanation.part_numbers.tolist()
        kept = zip(explanation.indices, explanation.coords, explanation.attention, strict=True)
        return [
            {"index": int(index)}
            | ({"image": places[k]} if several else {})
            | {"x": int(x), "y": int(y), "attention": float(attention)}
            for k, (index, (x, y), attention) in enumerate(kept)
        ]

    def _screened(self) -> dict[str, Any]:
        found = self.explanation.screened
        if found is None:
            return {}
        recalls = {
            "recall": asdict(found.recall.patches),
            "recall_attention": asdict(found.recall.attention),
        }
        return {"screened": {"scored": int(found.scored.sum()), **recalls}}


def predict(
    run: AnyPath | Predictor,
    images: Sequence[AnyPath],
    *,
    labels: AnyPath | None = None,
    figures: AnyPath | None = None,
    place: Place | None = None,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> Iterator[ImagePrediction]:
    """Predict images with a trained model.

    Args:
        run: run folder of a trained model, or a predictor.
        images: image files, slides or feature files, folders of them, and CSVs with their paths;
            see `ips.inputs.find_bags` for several images of a patient.
        labels: CSV with the paths or file names of images and the correct answers.
        figures: folder for a figure of each image's attention.
        place: where to work, and on which share of the images; see `ips.work.Place`. On Ray,
            predictions come in the order in which they are ready.
        on_error: callback that receives the error of an image that cannot be read; the other
            images are still predicted. By default the error is raised.
    """
    from ips.cohort import predict_all
    from ips.inputs import find_bags

    predictor = _load(run)
    bags = find_bags(images, predictor.config)
    truth = {} if labels is None else _truth(predictor, labels, bags)
    with _figure_files(bags, figures, place) as targets:
        for name, found in predict_all(
            predictor, _share(place, bags), figures=targets, place=place, console=console
        ):
            with _errors_to(on_error):
                if isinstance(found, IPSError):
                    raise found
                yield ImagePrediction(name, predictor.answers(found), found, truth.get(name, {}))


@dataclass(frozen=True)
class PredictionTable:
    """A CSV with a row for each image.

    Attributes:
        path: the file; see `ips.prediction_file` for its columns.
        images: number of images.
        reused: number of images that the file had already.
        failed: number of images that could not be predicted.
        right: for each task, the number of right answers, and that of images with a label.
    """

    path: Path
    images: int
    reused: int
    failed: int
    right: dict[str, tuple[int, int]]


def predict_csv(
    run: AnyPath | Predictor,
    images: Sequence[AnyPath],
    *,
    csv: AnyPath,
    labels: AnyPath | None = None,
    figures: AnyPath | None = None,
    place: Place | None = None,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> PredictionTable:
    """Predict images into a CSV, a row for each; images that it has already are not predicted.

    The file is whole at any time. An image that cannot be read gets a row with the error, and is
    tried again by the next call.

    Args:
        run: run folder of a trained model, or a predictor.
        images: images, see `predict`.
        csv: the file. Every share of the images has a file of its own, such as
            ``predictions-2-of-8.csv``; a call without a share takes the rows of all.
        labels: CSV with the correct answers, see `predict`.
        figures: folder for a figure of each image's attention.
        place: where to work, see `predict`.
        on_error: callback that receives the error of an image, in addition to its row.
    """
    from ips.cohort import fill_table
    from ips.inputs import find_bags
    from ips.prediction_file import PredictionFile, share_file, share_files

    predictor, path = _load(run), Path(csv)
    bags = find_bags(images, predictor.config)
    truth = None if labels is None else _truth(predictor, labels, bags)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _figure_files(bags, figures, place) as targets:
        bags, shares = _share(place, bags), share_files(path)
        if place is not None and place.shard is not None:
            path, shares = share_file(path, place.shard), []
        table = PredictionFile(path, list(bags), predictor.tasks, truth=truth, shares=shares)
        filled = fill_table(
            table,
            predictor,
            bags,
            figures=targets,
            place=place,
            console=console,
            on_error=on_error,
        )
    return PredictionTable(path, len(bags), filled.reused, filled.failed, table.counts())


def explain(
    run: AnyPath | Predictor,
    images: Sequence[AnyPath],
    *,
    out: AnyPath,
    top: int = 24,
    all_patches: bool = False,
    task: str | None = None,
    crop: bool = True,
    map_coordinates: bool = False,
    slides: AnyPath | SlideFinder | None = None,
    annotations: AnyPath | None = None,
    place: Place | None = None,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> Iterator[ExplainedImage]:
    """Write the attention of every patch of images; those whose files are there are left alone.

    Args:
        run: run folder of a trained model, or a predictor.
        images: images, see `predict`.
        out: output folder.
        top: number of patches in the gallery.
        all_patches: write every patch to the GeoJSON, not only the selected patches.
        task: task whose attention the TIFF shows; the mean over tasks by default.
        crop: count coordinates from the corner of the scanned part of a slide, as QuPath does.
        map_coordinates: write the GeoJSON of a GeoTIFF in its map coordinates instead of pixels;
            needs rasterio (extra ``geo``).
        slides: folder of the slides that feature files were extracted from, or a finder of them;
            by default those that the files name, or a CSV in a column ``slide``.
        annotations: GeoJSON or ASAP XML file, or folder of files named like the images, which are
            drawn as contours; by default files beside the images.
        place: where to work, see `predict`.
        on_error: callback for images that cannot be read, see `predict`.

    Yields:
        The files of each image: overlay, close-up, gallery, patch classes, CSV, GeoJSON and TIFF.
    """
    from ips.explain.export import output_stems
    from ips.inputs import bag_files, find_bags, slide_finder
    from ips.work import run as run_work

    if map_coordinates:
        require("rasterio")
    predictor = _load(run)
    if task is not None and task not in predictor.config.tasks:
        known = ", ".join(predictor.config.tasks)
        raise ConfigError(f"--task {task}: the model has no such task: choose one of {known}")
    bags, out = find_bags(images, predictor.config), Path(out)
    finder = slide_finder(slides, images, predictor.config)
    outlines = None if annotations is None else Path(annotations)
    if outlines is not None:
        check_annotations(outlines, images=len(bag_files(bags)))
    names = output_stems(list(bags), folder=out, inputs=bag_files(bags))
    stems = dict(zip(bags, names, strict=True))
    items = {name: (name, files, stems[name]) for name, files in _share(place, bags).items()}
    options = {"top": top, "all_patches": all_patches, "task": task, "crop": crop}
    work = Explaining(predictor, out, options, map_coordinates, finder, outlines)
    with _locked(out, "--out", place):
        for _, found in run_work(
            work, items, place=place, gpu=True, console=console, unit="images", transient=True
        ):
            with _errors_to(on_error):
                if isinstance(found, IPSError):
                    raise found
                yield found


def view(
    run: AnyPath | Predictor,
    images: Sequence[AnyPath],
    *,
    annotations: AnyPath | None = None,
    labels: AnyPath | None = None,
    slides: AnyPath | SlideFinder | None = None,
    port: int = 0,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serve the viewer, a page for the browser, until interrupted with Ctrl-C.

    Args:
        run: run folder of a trained model, or a predictor.
        images: image files, or feature files whose slide can be found, folders of them, and CSVs
            with their paths; see `ips.inputs.find_bags` for several images of a patient.
        annotations: GeoJSON or ASAP XML file, or folder of files named like the images; by default
            files beside the images.
        labels: CSV with the true labels of images; by default the table that the model was trained
            on, if it names some of them.
        slides: see `explain`.
        port: port of the page; 0 picks a free one.
        on_ready: callback that receives the address of the page; printed by default.
    """
    from ips.inputs import bag_files, slide_finder
    from ips.viewer import Library, find_images, serve

    predictor = _load(run)
    shape = predictor.net.patch_shape
    features = shape is not None and len(shape) == 1
    bags = find_images(map(Path, images), predictor.config, features=features)
    outlines = None if annotations is None else Path(annotations)
    if outlines is not None:
        check_annotations(outlines, images=len(bag_files(bags)))
    folder = Path(run) if isinstance(run, str | Path) else None
    truth = _known_truth(predictor, labels, bags)
    finder = slide_finder(slides, images, predictor.config)
    library = Library(predictor, folder, bags, annotations=outlines, truth=truth, slides=finder)
    serve(library, port=port, on_ready=on_ready)


def _load(run: AnyPath | Predictor) -> Predictor:
    from ips.loading import load

    return load(run) if isinstance(run, str | Path) else run


def _truth(predictor: Predictor, labels: AnyPath, bags: Bags) -> dict[str, dict[str, Answer]]:
    from ips.cohort import read_truth
    from ips.inputs import read_labels

    return read_truth(predictor, read_labels(labels, bags, predictor.config))


def _known_truth(
    predictor: Predictor, labels: AnyPath | None, bags: Bags
) -> dict[str, dict[str, Answer]]:
    """Correct answers from ``labels``, or else from the table of the training, if it has some."""
    from ips.config import TableConfig

    if labels is not None:
        return _truth(predictor, labels, bags)
    if isinstance(data := predictor.config.data, TableConfig):
        with suppress(DataError):  # other images, or a table that is gone
            return _truth(predictor, data.csv, bags)
    return {}


def _share(place: Place | None, bags: Bags) -> Bags:
    return bags if place is None else place.share(bags)


@contextmanager
def _figure_files(
    bags: Bags, folder: AnyPath | None, place: Place | None
) -> Iterator[dict[str, Path]]:
    """Paths of the figures of bags in a folder, which is locked; none without a folder."""
    if folder is None:
        yield {}
        return
    from ips.explain.export import output_stems
    from ips.inputs import bag_files

    folder = Path(folder)
    files = bag_files(bags)
    stems = output_stems(
        list(bags), folder=folder, endings=[".png"], base="-attention", inputs=files
    )
    with _locked(folder, "--figures", place):
        yield {name: folder / f"{stem}.png" for name, stem in zip(bags, stems, strict=True)}


@contextmanager
def _errors_to(callback: OnError | None) -> Iterator[None]:
    """Pass an IPSError inside the block to the callback; without a callback, raise it."""
    try:
        yield
    except IPSError as error:
        if callback is None:
            raise
        callback(error)


@contextmanager
def _locked(folder: Path, option: str, place: Place | None) -> Iterator[None]:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{option} {folder}: that is a file: give a folder")
    with lock_folder(folder, option=option, shard=None if place is None else place.shard):
        yield
