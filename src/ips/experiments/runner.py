"""Run an experiment: one training after another, each resumable, results written as they come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress

from ips.config import Config, parse_config
from ips.errors import ConfigError, IPSError
from ips.experiments.arms import Arm, Experiment, Scale
from ips.experiments.efficiency import Cost, cost_of
from ips.experiments.figures import draw_grid, draw_lines, draw_scores
from ips.experiments.tables import Result, markdown, per_run, write_csv
from ips.progress import progress_bar
from ips.recipes import read_recipe, shortened
from ips.training import RunFolder, evaluate, train

_ASKED = "asked.json"  # in the folder of a finished run: the settings before they met the data


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        experiment: which.
        scale: at which scale.
        seeds: how many trainings an arm.
        folder: where results, runs and measurements go.
        methods: only these; all if empty.
        settings: ``key=value`` that go for every arm.
        scores: train and test.
        costs: measure time and memory of a step.
        steps: of a measurement.
    """

    experiment: Experiment
    scale: Scale
    seeds: int
    folder: Path
    methods: Sequence[str] = ()
    settings: Sequence[str] = ()
    scores: bool = True
    costs: bool = True
    steps: int = 4

    def all_arms(self) -> list[Arm]:
        """Every line of the table."""
        if self.scale not in self.experiment.recipes:
            has = ", ".join(self.experiment.recipes)
            raise ConfigError(f"{self.experiment.name}: there is no scale {self.scale}, only {has}")
        return self.experiment.arms(self.scale)

    def arms(self) -> list[Arm]:
        """The lines that are asked for."""
        arms = self.all_arms()
        known = sorted({arm.method for arm in arms})
        for method in self.methods:
            if method not in known:
                raise ConfigError(
                    f"--methods {method}: {self.experiment.name} has {', '.join(known)}"
                )
        own = {setting.partition("=")[0] for arm in arms for setting in arm.settings}
        for setting in self.settings:
            if (key := setting.partition("=")[0]) in own:
                raise ConfigError(
                    f"--set {setting}: {key} is what the lines of {self.experiment.name} differ in"
                )
        return [arm for arm in arms if not self.methods or arm.method in self.methods]

    def config(self, arm: Arm, seed: int) -> Config:
        """Of one training; its seed is that of weights, order and dropout, not of the data."""
        own = [f"train.seed={seed}", *self.settings]
        settings = [*self.experiment.settings(arm, self.scale), *own]
        recipe = self.experiment.recipes[self.scale]
        config = parse_config(
            read_recipe(recipe, scale=self.scale, settings=settings),
            source=f"{self.experiment.name}, {arm.label}",
        )
        return shortened(config, settings)

    def run(self, arm: Arm, seed: int) -> Path:
        """The folder of one training."""
        return self.folder / "runs" / arm.slug / f"seed-{seed}"


def run_experiment(plan: Plan, *, console: Console) -> tuple[list[Path], list[str]]:
    """Do what is left of the plan; a finished training or measurement is not done again.

    An arm that fails does not stop the others.

    Returns:
        the files that hold the results, and what failed, a sentence each.
    """
    arms = plan.arms()
    for arm in arms:
        plan.config(arm, 0)  # a mistake in the settings is told before anything runs
    # Seed by seed, so that there is a whole table early.
    jobs: list[tuple[Arm, int | None]] = []
    if plan.costs:
        jobs += [(arm, None) for arm in arms]
    if plan.scores:
        jobs += [(arm, seed) for seed in range(plan.seeds) for arm in arms if arm.trains]
    plan.folder.mkdir(parents=True, exist_ok=True)
    failed = []
    with progress_bar(console) as progress:
        whole = progress.add_task(plan.experiment.name, total=len(jobs), note="")
        for arm, seed in jobs:
            name = f"{arm.label} {' '.join(f'{k}={v}' for k, v in arm.show.items())}".strip()
            name += "" if seed is None else f" seed {seed}"
            progress.update(whole, note=name)
            try:
                if seed is None:
                    _measure(plan, arm)
                else:
                    _train(plan, arm, seed, console=console, progress=progress)
            except (IPSError, MemoryError, RuntimeError) as error:
                failed.append(f"{name}: {_told(error)}")
            _write(plan, results_so_far(plan))
            progress.advance(whole)
    return _write(plan, results_so_far(plan)), failed


def results_so_far(plan: Plan) -> list[Result]:
    """Everything in the plan's folder that was made with the plan's settings."""
    results: list[Result] = []
    for arm in plan.all_arms():
        if (cost := _cost_before(plan, arm)) is not None:
            values = asdict(cost) | {"step_ms": cost.step_ms}
            found = [(name, value) for name, value in values.items() if value is not None]
            results += [Result(arm, None, name, value) for name, value in found]
        for run in sorted(plan.run(arm, 0).parent.glob("seed-*")):
            seed = int(run.name.removeprefix("seed-"))
            asked = run / _ASKED
            if asked.is_file() and json.loads(asked.read_text()) == _asked(plan, arm, seed):
                scores = json.loads(RunFolder(run).test.read_text())
                results += [Result(arm, seed, task, score) for task, score in scores.items()]
    return results


def _told(error: Exception) -> str:
    """In one sentence; what no one can foresee but a lack of memory goes on as it is."""
    if isinstance(error, IPSError):
        return str(error)
    lacks = isinstance(error, MemoryError | torch.OutOfMemoryError)
    if not lacks and "can't allocate memory" not in str(error):
        raise error
    return "does not fit into memory: take a smaller train.batch or smaller images"


def _train(plan: Plan, arm: Arm, seed: int, *, console: Console, progress: Progress) -> None:
    run = plan.run(arm, seed)
    # also a finished run: that it has other settings than these is an error
    train(plan.config(arm, seed), run, resume=True, console=console, progress=progress)
    if not RunFolder(run).test.is_file():
        evaluate(run, console=console, progress=progress)
    (run / _ASKED).write_text(json.dumps(_asked(plan, arm, seed), indent=2) + "\n")


def _measure(plan: Plan, arm: Arm) -> None:
    """In a process of its own, unless that was done before."""
    if _cost_before(plan, arm) is not None:
        return
    cost = cost_of(plan.config(arm, 0), steps=plan.steps)
    path = _cost_file(plan, arm)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(_conditions(plan, arm) | {"cost": asdict(cost)}, indent=2) + "\n")
    partial.replace(path)


def _cost_before(plan: Plan, arm: Arm) -> Cost | None:
    path = _cost_file(plan, arm)
    if not path.is_file():
        return None
    stored = json.loads(path.read_text())
    same = all(stored.get(key) == value for key, value in _conditions(plan, arm).items())
    return Cost(**stored["cost"]) if same else None


def _conditions(plan: Plan, arm: Arm) -> dict[str, Any]:
    return {"steps": plan.steps, "config": _asked(plan, arm, 0)}


def _asked(plan: Plan, arm: Arm, seed: int) -> dict[str, Any]:
    return plan.config(arm, seed).model_dump(mode="json")


def _cost_file(plan: Plan, arm: Arm) -> Path:
    return plan.folder / "costs" / f"{arm.slug}.json"


def _write(plan: Plan, results: Sequence[Result]) -> list[Path]:
    """All results so far: the numbers, the table, the figure."""
    if not results:
        return []
    numbers, table = plan.folder / "results.csv", plan.folder / "table.md"
    figure = plan.folder / "figure.png"
    write_csv(numbers, results)
    seen = [arm for arm in plan.all_arms() if any(result.arm == arm for result in results)]
    text = markdown(seen, results)
    match plan.experiment.kind:
        case "runs":
            text = per_run(seen, results, "majority") + "\n" + text
            draw_scores(figure, seen, results)
        case "size":
            draw_lines(figure, results, x="side", task="majority")
        case "grid":
            draw_grid(figure, results)
        case _:
            draw_scores(figure, seen, results)
    partial = table.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(table)
    return [numbers, table, figure]
