"""Apply a trained model to images: predict, explain and view them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ips.errors import ConfigError, DataError, IPSError
from ips.locks import lock_folder

if TYPE_CHECKING:
    from rich.console import Console

    from ips.explain import Explanation
    from ips.predictor import Predictor

AnyPath = str | Path
OnError = Callable[[IPSError], None]


@dataclass(frozen=True)
class ImagePrediction:
    """Prediction for one image.

    Attributes:
        image: path of the image, as it was given.
        answers: predicted class of each task; a list of classes for a multilabel task.
        explanation: probabilities, kept patches, and the attention of all patches.
    """

    image: str
    answers: dict[str, str | list[str]]
    explanation: Explanation

    def as_dict(self) -> dict[str, Any]:
        """The prediction as plain values for JSON, patches with the most attention first."""
        explanation = self.explanation
        kept = zip(explanation.indices, explanation.coords, explanation.attention, strict=True)
        return {
            "image": self.image,
            "tasks": {
                task: {"answer": answer, "probabilities": explanation.class_probabilities[task]}
                for task, answer in self.answers.items()
            },
            "patches": explanation.patches,
            "patch_size": explanation.extent,
            "kept": [
                {"index": int(index), "x": int(x), "y": int(y), "attention": float(attention)}
                for index, (x, y), attention in kept
            ],
        }


def predict(
    run: AnyPath,
    images: Sequence[AnyPath],
    *,
    figures: AnyPath | None = None,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> Iterator[ImagePrediction]:
    """Predict images one after the other with a trained model.

    Args:
        run: run folder of a trained model.
        images: image files, slides or feature files.
        figures: folder for a figure of each image's attention.
        on_error: callback that receives the error of an image that cannot be read; the other
            images are still predicted. By default the error is raised.
    """
    from ips.explain.export import output_stems
    from ips.explain.figures.attention import draw_attention
    from ips.predictor import load

    predictor, names = load(run), [str(image) for image in images]
    targets: Sequence[Path | None] = [None] * len(names)
    with ExitStack() as stack:
        if figures is not None:
            folder = Path(figures)
            stems = output_stems(names, folder=folder, endings=[".png"], base="-attention")
            targets = [folder / f"{stem}.png" for stem in stems]
            stack.enter_context(_locked(folder, "--figures"))
        for name, target in zip(names, targets, strict=True):
            with _errors_to(on_error):
                explanation = _predict_with_progress(predictor, name, console)
                if target is not None:
                    draw_attention(target, [explanation])
                probabilities = explanation.probabilities
                answers = {task: predictor.answer(task, p) for task, p in probabilities.items()}
                yield ImagePrediction(name, answers, explanation)


@dataclass(frozen=True)
class ExplainedImage:
    """Files that explain the prediction for one image.

    Attributes:
        image: path of the image, as it was given.
        answer: predicted classes of all tasks, in one line.
        patches: number of patches of the image.
        stem: beginning of the names of its files.
        files: files that were written.
        notes: one sentence for each file that this image cannot have.
    """

    image: str
    answer: str
    patches: int
    stem: str
    files: list[Path]
    notes: list[str]


def explain(
    run: AnyPath,
    images: Sequence[AnyPath],
    *,
    out: AnyPath,
    top: int = 24,
    all_patches: bool = False,
    task: str | None = None,
    crop: bool = True,
    console: Console | None = None,
    on_error: OnError | None = None,
) -> Iterator[ExplainedImage]:
    """Write the attention of every patch of images, one image after the other.

    Args:
        run, images, on_error: see `predict`.
        out: output folder.
        top, all_patches, task, crop: see `ips.explain.export.write_explanation`.

    Yields:
        The files of each image: overlay, gallery, patch classes, CSV, GeoJSON and TIFF.
    """
    from ips.explain.export import ENDINGS, omissions, output_stems, write_explanation
    from ips.predictor import load
    from ips.progress import progress_bar

    predictor = load(run)
    if task is not None and task not in predictor.config.tasks:
        known = ", ".join(predictor.config.tasks)
        raise ConfigError(f"--task {task}: the model has no such task: choose one of {known}")
    names, out = [str(image) for image in images], Path(out)
    stems = output_stems(names, folder=out)
    with _locked(out, "--out"):
        for name, stem in zip(names, stems, strict=True):
            with _errors_to(on_error):
                explanation = _predict_with_progress(predictor, name, console)
                with progress_bar(console, transient=True) as bar:
                    line = bar.add_task(Path(name).name, total=len(ENDINGS), note="files")
                    files = write_explanation(
                        out,
                        explanation,
                        stem=stem,
                        top=top,
                        task=task,
                        all_patches=all_patches,
                        crop=crop,
                        progress=partial(bar.advance, line),
                    )
                explanation.source.close()
                answer = explanation.title.removeprefix(f"{explanation.name}: ")
                notes = omissions(explanation, crop=crop)
                yield ExplainedImage(name, answer, explanation.patches, stem, files, notes)


def view(
    run: AnyPath,
    images: Sequence[AnyPath],
    *,
    annotations: AnyPath | None = None,
    port: int = 0,
    on_ready: Callable[[str], None] = print,
) -> None:
    """Serve the viewer, a page for the browser, until interrupted with Ctrl-C.

    Args:
        run: run folder of a trained model.
        images: image files, or folders of images.
        annotations: GeoJSON or ASAP XML file, or folder of files named like the images; by default
            files beside the images.
        port: port of the page; 0 picks a free one.
        on_ready: callback that receives the address of the page; printed by default.
    """
    from ips.predictor import load
    from ips.viewer import Library, find_images, serve

    outlines = None if annotations is None else Path(annotations)
    if outlines is not None and not outlines.exists():
        raise DataError(f"--annotations {outlines}: there is no such file or folder")
    paths = find_images(Path(image) for image in images)
    if outlines is not None and outlines.is_file() and len(paths) > 1:
        raise DataError(
            f"--annotations {outlines}: one file for {len(paths)} images: give a folder of files "
            "named like the images"
        )
    library = Library(load(run), Path(run), paths, annotations=outlines)
    serve(library, port=port, on_ready=on_ready)


def _predict_with_progress(
    predictor: Predictor, image: str, console: Console | None
) -> Explanation:
    from ips.progress import progress_bar

    with progress_bar(console, transient=True) as bar:
        line = bar.add_task(Path(image).name, total=None, note="patches")
        try:
            return predictor.predict(
                image, progress=lambda done, total: bar.update(line, completed=done, total=total)
            )
        except KeyboardInterrupt:
            kept = predictor.partial_scores(image)
            if kept is None:
                raise
            raise KeyboardInterrupt(
                f"the scores so far are in {kept.parent}: run the same command again to continue"
            ) from None


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
def _locked(folder: Path, option: str) -> Iterator[None]:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{option} {folder}: that is a file: give a folder")
    with lock_folder(folder, option=option):
        yield
