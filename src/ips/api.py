"""The commands of `ips` as Python functions: one documented function for each command.

    >>> from ips import api
    >>> api.train("megapixel-mnist", run="runs/demo").scores  # doctest: +SKIP
    {'majority': 0.94, 'max': 0.878, 'top': 0.84, 'multi': 0.505}

The functions raise `ips.IPSError` with a one-sentence message. They are silent by default: pass
``console=rich.console.Console()`` for progress bars. The commands of `ips data` are functions of
`ips.data`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ips.errors import ConfigError, DataError, IPSError

if TYPE_CHECKING:
    import torch
    from rich.console import Console

    from ips.bench.report import Report
    from ips.config import Config
    from ips.explain import Explanation
    from ips.predictor import Predictor
    from ips.pretraining.settings import Settings

Scale = Literal["laptop", "paper"]
AnyPath = str | Path

_GALLERY = 60  # patches in the gallery of a trained run


@dataclass(frozen=True)
class Evaluation:
    """Scores of a trained model on its test images.

    Attributes:
        run: run folder.
        scores: score of each task.
        metrics: name of each task's metric: accuracy, exact-match or auc.
    """

    run: Path
    scores: dict[str, float]
    metrics: Mapping[str, str]


def train(
    recipe: AnyPath,
    *,
    run: AnyPath,
    scale: Scale | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    console: Console | None = None,
    on_scores: Callable[[Evaluation], None] | None = None,
) -> Evaluation:
    """Train a model, evaluate it on its test images, and draw its figures into the run folder.

    Args:
        recipe: name of a recipe, or path of a YAML file.
        run: run folder.
        scale: scale of the recipe; ``laptop`` by default, where the recipe has it.
        settings: settings that override those of the recipe, as ``"select.keep=50"``.
        resume: continue the run in the run folder, if there is one.
        console: console for progress bars.
        on_scores: callback that receives the scores before the figures are drawn.

    Returns:
        Scores on the test images.

    >>> train("megapixel-mnist", run="runs/demo", settings=["train.epochs=5"])  # doctest: +SKIP
    """
    from ips.config import parse_config
    from ips.explain import Highest
    from ips.recipes import read_recipe, shortened
    from ips.report.figures import collector, draw_run, watcher
    from ips.training import build_data
    from ips.training import run as training

    folder, console = Path(run), console or _quiet()
    values = read_recipe(str(recipe), scale=scale, settings=settings)
    config = shortened(parse_config(values, source=str(recipe)), settings)
    data = build_data(config)
    watch = watcher(folder, data)
    training.train(config, folder, resume=resume, console=console, data=data, watch=watch)
    highest = Highest(_GALLERY)
    scores, net, config = training.evaluate(
        folder, console=console, data=data, seen=collector(highest)
    )
    evaluation = _evaluation(folder, scores, config)
    if on_scores is not None:
        on_scores(evaluation)
    draw_run(folder, net, config, data, highest)
    return evaluation


def evaluate(run: AnyPath, *, console: Console | None = None) -> Evaluation:
    """Score the trained model of a run folder on its test images, and write ``test.json``.

    Args:
        run: run folder of a trained model.
        console: console for the progress bar.

    Returns:
        Scores on the test images.

    >>> evaluate("runs/demo").scores["majority"]  # doctest: +SKIP
    """
    from ips.training import evaluate as evaluate_run

    scores, _, config = evaluate_run(Path(run), console=console or _quiet())
    return _evaluation(Path(run), scores, config)


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
        """The prediction as plain values for JSON, patches with most attention first."""
        explanation = self.explanation
        kept = zip(explanation.indices, explanation.coords, explanation.attention, strict=True)
        return {
            "image": self.image,
            "tasks": {
                task: {"answer": answer, "probabilities": explanation.named[task]}
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
    on_error: Callable[[IPSError], None] | None = None,
) -> Iterator[ImagePrediction]:
    """Predict images one after the other with a trained model.

    Args:
        run: run folder of a trained model.
        images: image files, slides or feature files.
        figures: folder for a figure of each image with the attention on it.
        console: console for progress bars.
        on_error: callback that receives the error of an image that cannot be read; the others
            are still predicted. By default the error is raised.

    Yields:
        The prediction of each image.

    >>> for prediction in predict("runs/demo", ["a.png", "b.png"]):  # doctest: +SKIP
    ...     print(prediction.image, prediction.answers)
    """
    from ips.explain import draw_attention
    from ips.explain.export import output_stems
    from ips.predictor import load

    predictor = load(run)
    names = [str(image) for image in images]
    stems: Sequence[str | None] = [None] * len(names)
    if figures is not None:
        figures = Path(figures)
        stems = output_stems(names, folder=figures, endings=[".png"], base="-attention")
        _output_folder(figures, "--figures")
    for name, stem in zip(names, stems, strict=True):
        try:
            explanation = _predict_with_progress(predictor, name, console or _quiet())
        except IPSError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        if figures is not None:
            draw_attention(
                Path(figures) / f"{stem}.png",
                predictions=[explanation],
                sources=[explanation.source],
                titles=[explanation.title],
                names=explanation.names,
            )
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
    on_error: Callable[[IPSError], None] | None = None,
) -> Iterator[ExplainedImage]:
    """Write the attention of every patch of images, one image after the other.

    Args:
        run: run folder of a trained model.
        images: image files, slides or feature files.
        out: output folder.
        top: number of patches in the gallery.
        all_patches: write every patch to the GeoJSON, not only the selected patches.
        task: task whose attention the TIFF shows; the mean over tasks by default.
        crop: count pixels of GeoJSON and TIFF from the corner of the scanned area, as QuPath does,
            not from the corner of the whole slide.
        console: console for progress bars.
        on_error: callback that receives the error of an image that cannot be read; the others
            are still explained. By default the error is raised.

    Yields:
        The files of each image: overlay, gallery, patch classes, CSV, GeoJSON and TIFF.

    >>> for image in explain("runs/demo", ["a.png"], out="out"):  # doctest: +SKIP
    ...     print(image.answer, image.files)
    """
    from ips.explain.export import ENDINGS, omissions, output_stems, write_explanation
    from ips.predictor import load
    from ips.progress import progress_bar

    predictor, console = load(run), console or _quiet()
    if task is not None and task not in predictor.config.tasks:
        known = ", ".join(predictor.config.tasks)
        raise ConfigError(f"--task {task}: the model has no such task: choose one of {known}")
    names, out = [str(image) for image in images], Path(out)
    stems = output_stems(names, folder=out)
    _output_folder(out, "--out")
    for name, stem in zip(names, stems, strict=True):
        try:
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
        except IPSError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        explanation.source.close()
        answer = explanation.title.removeprefix(f"{explanation.name}: ")
        notes = omissions(explanation, crop=crop)
        yield ExplainedImage(name, answer, explanation.patches, stem, files, notes)


def report(
    run: AnyPath,
    *,
    out: AnyPath | None = None,
    examples: int = 4,
    console: Console | None = None,
) -> Path:
    """Write an HTML page about a run: scores with intervals, confusion, calibration, examples.

    Args:
        run: run folder of a trained model.
        out: HTML file to write; ``report.html`` in the run folder by default.
        examples: number of correct and of wrong test images to show, each.
        console: console for progress bars.

    Returns:
        The HTML file.

    >>> report("runs/demo")  # doctest: +SKIP
    PosixPath('runs/demo/report.html')
    """
    from ips.report import write_run_report

    path = None if out is None else Path(out)
    return write_run_report(Path(run), path, examples=examples, console=console)


def view(
    run: AnyPath,
    images: Sequence[AnyPath],
    *,
    annotations: AnyPath | None = None,
    port: int = 0,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the viewer, a page for the browser, until interrupted with Ctrl-C.

    Args:
        run: run folder of a trained model.
        images: image files, or folders of images.
        annotations: GeoJSON or ASAP XML file, or folder of files named like the images; by default
            files beside the images.
        port: port of the page; 0 picks a free one.
        on_ready: callback that receives the address of the page.

    >>> import webbrowser
    >>> view("runs/demo", ["slides"], on_ready=webbrowser.open)  # doctest: +SKIP
    """
    from ips.predictor import load
    from ips.viewer import Library, find_images, serve

    paths = find_images(Path(image) for image in images)
    outlines = None if annotations is None else Path(annotations)
    if outlines is not None and not outlines.exists():
        raise DataError(f"--annotations {outlines}: there is no such file or folder")
    if outlines is not None and outlines.is_file() and len(paths) > 1:
        raise DataError(
            f"--annotations {outlines}: one file for {len(paths)} images: give a folder of files "
            "named like the images"
        )
    library = Library(load(run), Path(run), paths, annotations=outlines)
    serve(library, port=port, on_ready=on_ready or (lambda address: None))


def pretrain(
    settings: Settings,
    *,
    run: AnyPath = "runs/pretrain",
    resume: bool = False,
    devices: int = 1,
    workers: int = 0,
    skip_errors: bool = False,
    console: Console | None = None,
) -> Path | None:
    """Train an encoder on unlabelled patches with BYOL, and draw nearest neighbours.

    Args:
        settings: data, encoder and hyper-parameters.
        run: run folder.
        resume: continue the run in the run folder, if there is one.
        devices: number of GPUs, or of CPU processes without a GPU.
        workers: number of processes that read patches, for each device.
        skip_errors: continue without slides that cannot be read.
        console: console for progress bars and warnings.

    Returns:
        The file of the encoder, for ``encoder.weights``; None in all but the first process.

    >>> from ips.pretraining.settings import Settings
    >>> pretrain(Settings(data=(Path("slides"),)), run="runs/byol")  # doctest: +SKIP
    """
    from ips.pretraining.train import pretrain as pretrain_encoder

    return pretrain_encoder(
        settings,
        Path(run),
        resume=resume,
        console=console or _quiet(),
        devices=devices,
        workers=workers,
        skip_errors=skip_errors,
    )


@dataclass(frozen=True)
class ExperimentResult:
    """Outcome of an experiment.

    Attributes:
        files: results as CSV, Markdown table and figure; empty if there are no results yet.
        failures: one sentence for each training or measurement that failed.
    """

    files: list[Path]
    failures: list[str]


def experiment(
    name: str,
    *,
    out: AnyPath,
    scale: Scale = "laptop",
    seeds: int | None = None,
    methods: Sequence[str] = (),
    part: Literal["all", "scores", "costs"] = "all",
    settings: Sequence[str] = (),
    steps: int = 4,
    console: Console | None = None,
) -> ExperimentResult:
    """Reproduce a table or figure of the paper; what is finished is not run again.

    Args:
        name: one of ``ips.experiments.EXPERIMENTS``.
        out: output folder.
        scale: scale of the recipes.
        seeds: number of trainings of each row; as in the paper by default.
        methods: methods to run; all by default.
        part: ``scores`` trains, ``costs`` measures time and memory of a training step.
        settings: settings that override those of the recipes, as ``"train.epochs=5"``.
        steps: number of training steps of a measurement.
        console: console for progress bars.

    Returns:
        Result files and failures.

    >>> experiment("megapixel-mnist", out="runs/table", methods=["ips"])  # doctest: +SKIP
    """
    from ips.experiments import Plan, get_experiment, run_experiment

    chosen = get_experiment(name)
    plan = Plan(
        experiment=chosen,
        scale=scale,
        seeds=seeds or chosen.seeds,
        folder=Path(out),
        methods=methods,
        settings=settings,
        scores=part != "costs" and any(arm.trains for arm in chosen.arms(scale)),
        costs=part != "scores",
        steps=steps,
    )
    if not plan.scores and not plan.costs:
        raise ConfigError(f"{name}: trains no model: leave out --part scores")
    return ExperimentResult(*run_experiment(plan, console=console or _quiet()))


def bench_selection(
    *,
    cases: Sequence[str] | None = None,
    rounds: int = 3,
    batch: int | None = None,
    device: str | None = None,
    quick: bool = False,
    on_message: Callable[[str], None] | None = None,
) -> Report:
    """Measure the selection step: its speed, and whether it selects the same patches.

    Args:
        cases: of ``megapixel-mnist``, ``dense`` and ``features``; all by default.
        rounds: number of timed runs.
        batch: number of images; 16 by default.
        device: ``cpu`` or ``cuda``; the GPU by default, if there is one.
        quick: tiny sizes for a test; the numbers mean nothing.
        on_message: callback that receives a line for every measurement.

    Returns:
        Measurements as a table, a figure and JSON: see `Report.save`.

    >>> bench_selection(quick=True).save(Path("runs/bench"))  # doctest: +SKIP
    """
    from ips.bench import selection

    return selection.bench_selection(
        cases or selection.CASES,
        rounds=rounds,
        batch=batch,
        device=_device(device),
        quick=quick,
        log=on_message or _ignore,
    )


def bench_step(
    *,
    rounds: int = 3,
    batch: int = 16,
    device: str | None = None,
    quick: bool = False,
    on_message: Callable[[str], None] | None = None,
) -> Report:
    """Measure a whole training step on megapixel MNIST; arguments as in `bench_selection`."""
    from ips.bench import step

    return step.bench_step(
        rounds=rounds,
        batch=batch,
        device=_device(device),
        quick=quick,
        log=on_message or _ignore,
    )


def bench_memory(
    images: AnyPath,
    *,
    sides: Sequence[int] | None = None,
    arms: Sequence[str] | None = None,
    batch: int = 4,
    width: int = 64,
    limit_gb: float = 6.0,
    quick: bool = False,
    on_message: Callable[[str], None] | None = None,
) -> Report:
    """Measure the peak memory of a training step against the size of the images on disk.

    Args:
        images: folder for the images that are generated; a later call reuses them.
        sides: sides of the images in pixels; 1,000 to 10,000 by default.
        arms: of ``eager``, ``sequential``, ``lazy`` and ``cnn``; all by default.
        batch: number of images of a step.
        width: number of channels of the first encoder stage.
        limit_gb: memory limit in GB above which the CNN is not run.
        quick: tiny sizes for a test; the numbers mean nothing.
        on_message: callback that receives a line for every measurement.

    Returns:
        Measurements as a table, a figure and JSON: see `Report.save`.

    >>> bench_memory("runs/bench/images", quick=True).rows  # doctest: +SKIP
    """
    from ips.bench import memory

    unknown = [name for name in arms or [] if name not in memory.ARMS]
    if unknown:
        raise ConfigError(f"--arm {unknown[0]}: expected one of {', '.join(memory.ARMS)}")
    return memory.bench_memory(
        Path(images),
        sides=sides or memory.SIDES,
        arms=arms or memory.ARMS,
        batch=batch,
        width=width,
        limit_gb=limit_gb,
        quick=quick,
        log=on_message or _ignore,
    )


def bench_read(
    *,
    side: int = 4096,
    patch: int = 128,
    rounds: int = 3,
    quick: bool = False,
    on_message: Callable[[str], None] | None = None,
) -> Report:
    """Measure the patches per second of every image reader, and the gain from reading ahead.

    Args:
        side: side of the image in pixels.
        patch: side of a patch in pixels.
        rounds: number of timed runs.
        quick: tiny sizes for a test; the numbers mean nothing.
        on_message: callback that receives a line for every measurement.

    Returns:
        Measurements as a table, a figure and JSON: see `Report.save`.

    >>> bench_read(quick=True).rows  # doctest: +SKIP
    """
    from ips.bench import read

    log = on_message or _ignore
    return read.bench_read(side=side, patch=patch, rounds=rounds, quick=quick, log=log)


def _evaluation(run: Path, scores: dict[str, float], config: Config) -> Evaluation:
    from ips.tasks import build_tasks

    tasks = build_tasks(config.tasks)
    return Evaluation(run, scores, {name: tasks[name].metric_name for name in scores})


def _predict_with_progress(predictor: Predictor, image: str, console: Console) -> Explanation:
    from ips.progress import progress_bar

    total = len(predictor.open(image))
    with progress_bar(console, transient=True) as bar:
        task = bar.add_task(Path(image).name, total=total, note="patches")
        try:
            return predictor.predict(image, progress=lambda done: bar.update(task, completed=done))
        except KeyboardInterrupt:
            kept = predictor.unfinished(image)
            if kept is None:
                raise
            raise KeyboardInterrupt(
                f"the scores so far are in {kept.parent}: run the same command again to continue"
            ) from None


def _output_folder(folder: Path, option: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{option} {folder}: that is a file: give a folder") from error
    return folder


def _device(name: str | None) -> torch.device:
    """The device of that name; by default the GPU of this torchrun process, or the CPU."""
    import torch

    if name not in (None, "cpu", "cuda"):
        raise ConfigError(f"--device {name}: expected cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: no GPU is available, use cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    # A process may see only one of several GPUs, and there may be more processes than GPUs.
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank % torch.cuda.device_count())


def _quiet() -> Console:
    from rich.console import Console

    return Console(quiet=True)


def _ignore(message: str) -> None:
    pass
