"""The commands of `ips` as Python functions: one documented function for each command.

Usage::

    from ips import api

    api.train("megapixel-mnist", run="runs/demo", settings=["train.epochs=5"])
    for prediction in api.predict("runs/demo", ["a.png", "b.png"]):
        print(prediction.image, prediction.answers)

The functions raise `ips.IPSError` with a one-sentence message. They are silent by default: pass
``console=rich.console.Console()`` for progress bars. ``settings`` override those of a recipe, as
``"select.keep=50"``. The commands of `ips data` are functions of `ips.data`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ips.api.folds import train_folds
from ips.api.inference import (
    ImagePrediction,
    PredictionTable,
    explain,
    predict,
    predict_csv,
    view,
)
from ips.api.own_data import check, init
from ips.api.sharing import export, share
from ips.errors import ConfigError
from ips.explaining import ExplainedImage

if TYPE_CHECKING:
    from rich.console import Console

    from ips.bench.devices import check_device
    from ips.bench.memory import bench_memory
    from ips.bench.read import bench_read
    from ips.bench.speed import bench_selection, bench_step
    from ips.config import Config
    from ips.doctor import examine as doctor
    from ips.experiments import ExperimentResult
    from ips.patches import FileLayout
    from ips.pretraining.train import pretrain
    from ips.report import write_run_report as report
    from ips.report.comparison import compare
    from ips.report.evaluation import CohortEvaluation, evaluate_cohort
    from ips.slides.coords import Resolution
    from ips.slides.features import FeatureExtractor
    from ips.slides.states import SlideState
    from ips.slides.tissue import find_tissue
    from ips.training import Data, Evaluation, evaluate
    from ips.tuning import Trial, Tuning
    from ips.work import Place

__all__ = [
    "CohortEvaluation",
    "Evaluation",
    "ExperimentResult",
    "ExplainedImage",
    "ImagePrediction",
    "PredictionTable",
    "bench_memory",
    "bench_read",
    "bench_selection",
    "bench_step",
    "check",
    "check_device",
    "compare",
    "doctor",
    "evaluate",
    "evaluate_cohort",
    "experiment",
    "explain",
    "export",
    "extract_features",
    "feature_status",
    "find_tissue",
    "init",
    "predict",
    "predict_csv",
    "pretrain",
    "report",
    "share",
    "train",
    "train_folds",
    "tune",
    "view",
]

# Names from other packages; imported at first use, so that `import ips.api` is fast.
_LAZY = {
    "CohortEvaluation": "ips.report.evaluation.CohortEvaluation",
    "Evaluation": "ips.training.Evaluation",
    "ExperimentResult": "ips.experiments.ExperimentResult",
    "bench_memory": "ips.bench.memory.bench_memory",
    "bench_read": "ips.bench.read.bench_read",
    "bench_selection": "ips.bench.speed.bench_selection",
    "bench_step": "ips.bench.speed.bench_step",
    "check_device": "ips.bench.devices.check_device",
    "compare": "ips.report.comparison.compare",
    "doctor": "ips.doctor.examine",
    "evaluate": "ips.training.evaluate",
    "evaluate_cohort": "ips.report.evaluation.evaluate_cohort",
    "find_tissue": "ips.slides.tissue.find_tissue",
    "pretrain": "ips.pretraining.train.pretrain",
    "report": "ips.report.write_run_report",
}

AnyPath = str | Path
Scale = Literal["laptop", "paper"]

_GALLERY = 60  # patches in the gallery of a trained run


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'ips.api' has no attribute {name!r}")
    module, _, attribute = _LAZY[name].rpartition(".")
    return getattr(import_module(module), attribute)


def train(
    recipe: AnyPath,
    *,
    run: AnyPath,
    scale: Scale | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    skip_errors: bool = False,
    console: Console | None = None,
    on_scores: Callable[[Evaluation], None] | None = None,
) -> Evaluation:
    """Train a model, evaluate it on its test images, and draw its figures into the run folder.

    Args:
        recipe: name of a recipe, or path of a YAML file.
        run: run folder.
        scale: scale of the recipe; ``laptop`` by default, where the recipe has it.
        resume: continue the run in the run folder, if there is one.
        skip_errors: leave out files of a table that cannot be read.
        on_scores: callback that receives the scores before the figures are drawn.
    """
    config = read_config(str(recipe), scale, settings)
    from ips.training import RunFolder, check_processes

    with RunFolder(Path(run)).lock(check_processes(config)):
        if skip_errors:
            config = without_bad_files(config, Path(run), resume=resume, console=console)
        return train_run(config, Path(run), resume=resume, console=console, on_scores=on_scores)


def without_bad_files(
    config: Config, run: Path, *, resume: bool = False, console: Console | None = None
) -> Config:
    """A config without the files of a table that cannot be read; the run folder lists them."""
    from ips.progress import progress_bar
    from ips.training import RunFolder
    from ips.training.skipping import skip_bad_files

    RunFolder(run).has_run(resume=resume)
    return skip_bad_files(config, RunFolder(run), progress_bar(console))


def train_run(
    config: Config,
    run: Path,
    data: Data | None = None,
    *,
    resume: bool = False,
    console: Console | None = None,
    on_scores: Callable[[Evaluation], None] | None = None,
) -> Evaluation:
    """Do what `train` does with a config that is read already."""
    # imported after the config is read, so that a mistake in it is reported at once
    from ips import training
    from ips.explain.figures.gallery import TopPatches
    from ips.report.figures import draw_run, snapshot_writer, top_patch_collector
    from ips.tasks import build_tasks

    processes = training.check_processes(config)
    with training.RunFolder(run).lock(processes):
        data = data or training.build_data(config)
        watch = snapshot_writer(run, data, build_tasks(config.tasks))
        model = training.train(config, run, resume=resume, console=console, data=data, watch=watch)
        top = TopPatches(_GALLERY)
        evaluation = training.evaluate(
            run,
            model=model,
            console=console,
            data=data,
            observer=top_patch_collector(top),
            processes=processes,
        )
        if processes.is_first:
            if on_scores is not None:
                on_scores(evaluation)
            draw_run(run, model, data, top)
    return evaluation


def read_config(recipe: str, scale: Scale | None, settings: Sequence[str]) -> Config:
    """Read a config, and check what can be checked without importing torch."""
    from ips.config import TableConfig, label_columns
    from ips.config_io import parse_config
    from ips.data.table import check_columns
    from ips.recipes import fit_warmup, read_recipe

    values = read_recipe(recipe, scale=scale, settings=settings)
    config = fit_warmup(parse_config(values, source=recipe), settings)
    if isinstance(data := config.data, TableConfig):
        tasks = label_columns(config.tasks)
        check_columns(data.csv, root=data.root, path=data.path, tasks=tasks, group=data.group)
    return config


def tune(
    recipe: AnyPath,
    *,
    out: AnyPath,
    over: Sequence[str] = (),
    trials: int = 20,
    hours: float | None = None,
    scale: Scale | None = None,
    settings: Sequence[str] = (),
    seed: int = 0,
    console: Console | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> Tuning:
    """Search for the settings with the best validation scores, without any test images.

    Calling it again continues a search that was interrupted.

    Args:
        recipe: name of a recipe, or path of a YAML file.
        out: folder of the search; the best config is its ``best.yaml``.
        over: settings and their values, as ``train.lr=0.0003..0.01`` or ``select.keep=5,10,20``; by
            default learning rate, M, patch size and encoder around those of the config.
        trials: number of trainings, with those that the folder has already.
        hours: time after which no further training begins.
        scale: scale of the recipe; ``laptop`` by default, where the recipe has it.
        seed: random seed of the search.
        on_trial: callback that receives every training that has ended.
    """

    def configure(chosen: Sequence[str]) -> Config:
        return read_config(str(recipe), scale, [*settings, *chosen])

    configure([])  # a mistake in it is reported before torch is imported
    from ips.tuning import tune as search

    return search(
        configure,
        Path(out),
        name=str(recipe),
        over=over,
        trials=trials,
        hours=hours,
        seed=seed,
        console=console,
        on_trial=on_trial,
    )


def extract_features(
    slides: Sequence[AnyPath],
    *,
    out: AnyPath,
    extractor: FeatureExtractor,
    coords: AnyPath | None = None,
    resolution: Resolution | None = None,
    layout: FileLayout = "ips",
    skip_errors: bool = False,
    place: Place | None = None,
    console: Console | None = None,
) -> list[SlideState]:
    """Encode the patches of slides and store their features, one HDF5 file for each slide.

    Finished slides are skipped.

    Args:
        slides: slide files, or folders of slides.
        out: output folder.
        extractor: the encoder, see `ips.slides.encoder.build_extractor`.
        coords: folder of patch coordinates written by `find_tissue`, CLAM or TRIDENT; by default
            all patches of a grid.
        resolution: patch size and resolution to read at; by default those of the extractor's
            preset, as stored in ``coords``, or 256 px at level 0.
        layout: layout of the feature files; ``trident`` for all attributes that TRIDENT writes.
        skip_errors: continue without slides that cannot be read.
        place: where to work: in this process, as one share of several, or on Ray.
    """
    from ips.slides.coords import Resolution, slide_patches
    from ips.slides.features import extract_features as extract
    from ips.slides.listing import list_slides

    resolution = (resolution or Resolution()).filled(extractor.resolution)
    return extract(
        {file.stem: file for file in list_slides(slides)},
        out,
        extractor=extractor,
        open_slide=partial(slide_patches, resolution=resolution, coords=coords),
        layout=layout,
        skip_errors=skip_errors,
        place=place,
        console=console,
    )


def feature_status(folder: AnyPath, *, slides: Sequence[AnyPath] = ()) -> list[SlideState]:
    """Return which slides of `extract_features` are done, failed or left.

    Args:
        folder: output folder of `extract_features`.
        slides: slide files, or folders of slides; by default those that were started.
    """
    from ips.slides.listing import list_slides
    from ips.slides.states import FeatureFolder

    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: there is no such folder: give the folder of ips slides features"
        )
    names = [file.stem for file in list_slides(slides)]
    return FeatureFolder(folder).states(names or None)


def experiment(
    name: str,
    *,
    out: AnyPath,
    scale: Scale = "laptop",
    seeds: int | None = None,
    methods: Sequence[str] = (),
    part: Literal["all", "scores", "costs"] = "all",
    settings: Sequence[str] = (),
    steps: int | Literal["epoch"] = 4,
    limit_gb: float = 16.0,
    shard: tuple[int, int] | None = None,
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
        steps: number of training steps of a measurement, or ``epoch`` for a whole epoch, as in the
            paper.
        limit_gb: memory limit of a measurement; the costs of a DeepMIL row that would exceed it
            are computed from smaller samples.
        shard: number of the share of the trainings to run, from 1, and the number of shares; all
            trainings by default.
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
        limit_gb=limit_gb,
        shard=shard,
    )
    if not plan.scores and not plan.costs:
        raise ConfigError(f"{name}: trains no model: leave out --part scores")
    return run_experiment(plan, console=console)
