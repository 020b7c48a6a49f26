"""Run an experiment: resumable trainings, one after the other, with results written after each."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.progress import Progress

from ips.config import Config, TableConfig
from ips.config_io import parse_config, parse_saved_config
from ips.errors import ConfigError, IPSError, RunError, because, shown
from ips.experiments.arms import OBJECTS, TABLE, Arm, Experiment, Scale
from ips.experiments.efficiency import Cost, Steps, measure_cost
from ips.experiments.extrapolation import measure_or_compute
from ips.experiments.figures import draw_grid, draw_lines, draw_memory, draw_scores
from ips.experiments.stand_in import with_stand_in, write_stand_in
from ips.experiments.tables import (
    BEGUN,
    MACRO_F1,
    Result,
    localisation_table,
    markdown,
    per_run,
    values_of,
    write_csv,
)
from ips.files import write_text
from ips.localisation import Localisation
from ips.locks import lock_folder, wait_for_lock
from ips.progress import print_without_terminal, progress_bar
from ips.recipes import fit_warmup, read_recipe
from ips.training import RunFolder, evaluate, train

# File in the folder of a finished run: the requested settings, before they are adapted to the data.
_REQUESTED = "asked.json"
# Folder of random features, for costs where the table of the recipe is missing.
_STAND_IN = "stand-in"
# Processes with different shares wait for each other to prepare data and to write results.
_TURN = ".turn"


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        seeds: number of trainings per arm.
        folder: folder for results, runs and measurements.
        methods: methods to run; all if empty.
        settings: ``key=value`` for every arm.
        scores: train and test.
        costs: measure time and memory of a step.
        steps: number of steps per measurement, or ``epoch``.
        limit_gb: memory limit; costs of a row that would exceed it are computed.
        shard: number of the share of this process, from 1, and the number of shares; None for all.
    """

    experiment: Experiment
    scale: Scale
    seeds: int
    folder: Path
    methods: Sequence[str] = ()
    settings: Sequence[str] = ()
    scores: bool = True
    costs: bool = True
    steps: Steps = 4
    limit_gb: float = 16.0
    shard: tuple[int, int] | None = None

    def arms(self) -> list[Arm]:
        """The arms of the chosen methods, after a check of methods and settings."""
        name, arms = self.experiment.name, self.experiment.arms(self.scale)
        known = sorted({arm.method for arm in arms})
        for method in self.methods:
            if method not in known:
                raise ConfigError(f"--methods {method}: {name} has {', '.join(known)}")
        varied = {setting.partition("=")[0] for arm in arms for setting in arm.settings}
        for setting in self.settings:
            if (key := setting.partition("=")[0]) in varied:
                raise ConfigError(f"--set {setting}: the arms of {name} differ in {key}")
        return [arm for arm in arms if not self.methods or arm.method in self.methods]

    def config(self, arm: Arm, seed: int) -> Config:
        """Config of one training; the seed is for weights, order and dropout, not for the data."""
        common = self.experiment.common.get(self.scale, ())
        settings = [*arm.settings, f"train.seed={seed}", *self.settings]
        recipe = self.experiment.recipes[self.scale]
        values = read_recipe(recipe, scale=self.scale, settings=[*common, *settings])
        config = parse_config(values, source=f"{self.experiment.name}, {arm.label}")
        if self.prepared is not None:
            assert isinstance(config.data, TableConfig)
            places = {"csv": self.prepared / TABLE, "objects": self.prepared / OBJECTS}
            data = config.data.model_copy(update=places)
            config = config.model_copy(update={"data": data})
        return fit_warmup(config, settings)

    @property
    def names_table(self) -> bool:
        """Whether the settings name a table of feature files."""
        return any(setting.startswith("data.csv=") for setting in self.settings)

    @property
    def prepared(self) -> Path | None:
        """Folder of the data that the experiment prepares, unless the settings name other data."""
        if self.names_table or self.scale not in self.experiment.prepare:
            return None
        return self.folder.resolve() / "data"

    def run(self, arm: Arm, seed: int) -> Path:
        return self.folder / "runs" / arm.slug / f"seed-{seed}"


class ExperimentResult(NamedTuple):
    """Outcome of an experiment.

    Attributes:
        files: results as CSV, Markdown table and figure; empty if there are no results yet.
        failures: one sentence for each training or measurement that failed.
    """

    files: list[Path]
    failures: list[str]


def run_experiment(plan: Plan, *, console: Console | None = None) -> ExperimentResult:
    """Run the unfinished part of a plan; finished trainings and measurements are not repeated.

    An arm that fails does not stop the others.
    """
    arms = plan.arms()
    for arm in arms:
        plan.config(arm, 0)  # reports a mistake in the settings before anything runs
    # Seed by seed, so that a complete table exists early.
    jobs: list[tuple[Arm, int | None]] = []
    if plan.costs:
        jobs += [(arm, None) for arm in arms]
    if plan.scores:
        jobs += [(arm, seed) for seed in range(plan.seeds) for arm in arms if arm.trains]
    if plan.shard is not None:
        number, count = plan.shard
        jobs = jobs[number - 1 :: count]
    option = "--out, or divide the work with --shard"
    with lock_folder(plan.folder, option=option, shard=plan.shard):
        return _run_jobs(plan, jobs, console)


def _run_jobs(
    plan: Plan, jobs: Sequence[tuple[Arm, int | None]], console: Console | None
) -> ExperimentResult:
    if plan.prepared is not None:
        with wait_for_lock(plan.folder / _TURN):
            plan.experiment.prepare[plan.scale](plan.prepared, console=console)
    files: list[Path] | None = None
    failures = []
    with progress_bar(console) as progress:
        bar = progress.add_task(plan.experiment.name, total=len(jobs), note="")
        for arm, seed in jobs:
            name = f"{arm.label} {' '.join(f'{k}={v}' for k, v in arm.sizes.items())}".strip()
            name += "" if seed is None else f" seed {seed}"
            progress.update(bar, note=name)
            print_without_terminal(progress, name)
            measured = seed is None and _stored_cost(plan, arm) is not None
            try:
                if seed is None:
                    _measure(plan, arm)
                else:
                    _train(plan, arm, seed, console=console, progress=progress)
                    gc.collect()  # the trainer refers to itself, and would keep the data in memory
            except (IPSError, MemoryError, RuntimeError) as error:
                failures.append(f"{name}: {_failure(error)}")
            if not measured:  # otherwise nothing is new
                files = _write_in_turn(plan)
            progress.advance(bar)
    return ExperimentResult(_write_in_turn(plan) if files is None else files, failures)


def read_results(plan: Plan) -> list[Result]:
    """All results in the plan's folder that were made with the plan's settings."""
    results: list[Result] = []
    for arm in plan.experiment.arms(plan.scale):
        if (stored := _stored_cost(plan, arm)) is not None:
            cost, computed = stored
            values = asdict(cost) | {"step_ms": cost.step_ms}
            results += [
                Result(arm, None, k, v, computed=computed)
                for k, v in values.items()
                if v is not None
            ]
        for run in sorted(plan.run(arm, 0).parent.glob("seed-*")):
            seed = int(run.name.removeprefix("seed-"))
            if _is_config(_read_json(run / _REQUESTED), plan.config(arm, seed)):
                scores = _read_scores(RunFolder(run).test)
                defined = {task: s for task, s in scores.items() if s is not None}
                results += [Result(arm, seed, task, score) for task, score in defined.items()]
                results += _read_macro_f1(RunFolder(run).test, arm, seed)
                results += _read_localisation(RunFolder(run).test, arm, seed)
                results += _read_begun(RunFolder(run).start, arm, seed)
    return results


def _failure(error: Exception) -> str:
    """One sentence for a failure; re-raises everything except our own and out-of-memory errors."""
    if isinstance(error, IPSError):
        return str(error)
    out_of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if not out_of_memory and "can't allocate memory" not in str(error):
        raise error
    return "does not fit into memory: use a smaller train.batch or smaller images"


def _train(plan: Plan, arm: Arm, seed: int, *, console: Console | None, progress: Progress) -> None:
    run = plan.run(arm, seed)
    # Also for a finished run: it is an error if its settings differ.
    config = plan.config(arm, seed)
    model = train(config, run, resume=True, console=console, progress=progress)
    if not RunFolder(run).test.is_file():
        evaluate(run, model=model, console=console, progress=progress)
    _write_json(run / _REQUESTED, _values(plan, arm, seed))


def _measure(plan: Plan, arm: Arm) -> None:
    if _stored_cost(plan, arm) is not None:
        return
    config = _cost_config(plan, arm)
    if config != plan.config(arm, 0):
        write_stand_in(plan.folder / _STAND_IN)
    measure = partial(measure_cost, steps=plan.steps)
    cost, computed = measure_or_compute(config, measure, limit_gb=plan.limit_gb)
    path = _cost_file(plan, arm)
    path.parent.mkdir(parents=True, exist_ok=True)
    conditions = {
        "steps": plan.steps,
        "limit_gb": plan.limit_gb,
        "config": config.model_dump(mode="json"),
    }
    _write_json(path, conditions | {"cost": asdict(cost), "computed": computed})


def _stored_cost(plan: Plan, arm: Arm) -> tuple[Cost, bool] | None:
    """The cost of an arm, and whether it was computed instead of measured."""
    stored = _read_json(_cost_file(plan, arm))
    if not isinstance(stored, dict) or stored.get("steps") != plan.steps:
        return None
    if not _is_config(stored.get("config"), _cost_config(plan, arm)):
        return None
    computed = bool(stored.get("computed", False))
    if computed and stored.get("limit_gb") != plan.limit_gb:  # it may fit now
        return None
    match stored.get("cost"):
        case {"memory_gb": memory, "select_ms": select, "rest_ms": rest}:
            if _is_number(memory) and _is_number(rest) and (select is None or _is_number(select)):
                return Cost(memory, select, rest), computed
    return None  # damaged: it is measured again


def _cost_config(plan: Plan, arm: Arm) -> Config:
    config = plan.config(arm, 0)
    return config if plan.names_table else with_stand_in(config, plan.folder / _STAND_IN)


def _cost_file(plan: Plan, arm: Arm) -> Path:
    return plan.folder / "costs" / f"{arm.slug}.json"


def _is_config(stored: Any, config: Config) -> bool:
    """Whether stored settings are those of ``config``; a newer version may have more of them.

    Where objects are makes no difference to a training.
    """
    if not isinstance(stored, dict):
        return False
    try:
        then = parse_saved_config(stored, source="")
    except ConfigError:
        return False
    first, second = (each.model_dump(mode="json") for each in (then, config))
    for values in (first, second):
        values["data"].pop("objects", None)
    return first == second


def _values(plan: Plan, arm: Arm, seed: int) -> dict[str, Any]:
    return plan.config(arm, seed).model_dump(mode="json")


def _read_json(path: Path) -> Any:
    """The values in a file; None without the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError) as error:
        reason = because(error, remedy="delete it and run the same command again")
        raise RunError(f"{path}: cannot be read {reason}") from error


def _read_scores(path: Path) -> dict[str, float | None]:
    """The scores of a test by task, None where undefined; empty without the file."""
    values = _read_json(path)
    if values is None:
        return {}
    scores = values
    if isinstance(values, dict):  # earlier versions stored the score alone
        scores = {t: v.get("score", v) if isinstance(v, dict) else v for t, v in values.items()}
    if not isinstance(scores, dict) or not all(s is None or _is_number(s) for s in scores.values()):
        raise RunError(
            f"{path}: expected a score for each task, found {shown(values)}: delete it and run the "
            "same command again"
        )
    return scores


def _read_macro_f1(path: Path, arm: Arm, seed: int) -> list[Result]:
    """The macro F1 of the tasks for which a test has it: those with lopsided labels."""
    values = _read_json(path) or {}
    scores = {task: v.get("scores", {}) for task, v in values.items() if isinstance(v, dict)}
    return [
        Result(arm, seed, task, found[MACRO_F1]["score"], measure=MACRO_F1)
        for task, found in scores.items()
        if MACRO_F1 in found
    ]


def _read_localisation(path: Path, arm: Arm, seed: int) -> list[Result]:
    """The scores of a test that say where attention is, as far as it has any."""
    values = _read_json(path) or {}
    stored = {task: v.get("localisation") for task, v in values.items() if isinstance(v, dict)}
    found = {task: Localisation.from_dict(values) for task, values in stored.items()}
    return [
        Result(arm, seed, task, score.value, measure=measure)
        for task, result in found.items()
        if result is not None
        for measure, score in result.measures.items()
        if score.defined
    ]


def _read_begun(path: Path, arm: Arm, seed: int) -> list[Result]:
    """Whether the training of a run has begun; nothing for runs of earlier versions."""
    values = _read_json(path)
    if not isinstance(values, dict):
        return []
    return [Result(arm, seed, "training", float(values.get("begun") is not None), measure=BEGUN)]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    write_text(path, json.dumps(values, indent=2) + "\n")


def _write_in_turn(plan: Plan) -> list[Path]:
    with wait_for_lock(plan.folder / _TURN):
        return _write_results(plan)


def _write_results(plan: Plan) -> list[Path]:
    """Write the numbers, the table and the figure of all results so far."""
    results = read_results(plan)
    if not results:
        return []
    paths = [plan.folder / name for name in ("results.csv", "table.md", "figure.png")]
    numbers, table, figure = paths
    arms = list({result.arm.slug: result.arm for result in results}.values())
    text = markdown(arms, results)
    match plan.experiment.kind:
        case "lines":
            x, panels = plan.experiment.lines
            draw_lines(figure, arms, results, x=x, panels=panels)
        case "grid":
            draw_grid(figure, arms, results)
        case "table" | "table-per-run":
            draw_scores(figure, arms, results)
    if plan.experiment.patches.get(plan.scale) and any(r.name == "memory_gb" for r in results):
        paths.append(plan.folder / "memory.png")
        measured = [arm for arm in arms if values_of(results, arm, "memory_gb")]
        draw_memory(paths[-1], measured, results, largest=plan.experiment.patches[plan.scale])
    if plan.experiment.kind == "table-per-run":
        text = per_run(arms, results, "majority") + "\n" + text
    if located := localisation_table(arms, results):
        text += "\n" + located
    write_csv(numbers, results)
    write_text(table, text)
    return paths
