"""Run an experiment: one training after another, each resumable, results written as they come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from ips.config import Config, parse_config
from ips.errors import ConfigError
from ips.experiments.arms import Arm, Experiment, Scale
from ips.experiments.efficiency import Cost, cost_of
from ips.experiments.figures import draw_grid, draw_lines, draw_scores
from ips.experiments.tables import Result, markdown, per_run, write_csv
from ips.progress import progress_bar
from ips.recipe import read_recipe
from ips.training import RunFolder, evaluate, train


@dataclass(frozen=True)
class Plan:
    """What is to be done.

    Attributes:
        experiment: which.
        scale: at which scale.
        seeds: how many trainings an arm.
        methods: only these; all if empty.
        settings: ``key=value`` that go for every arm, over its own.
        folder: where results, runs and measurements go.
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

    def arms(self) -> list[Arm]:
        """The lines of the table that are asked for."""
        if self.scale not in self.experiment.recipe:
            has = ", ".join(self.experiment.recipe)
            raise ConfigError(f"{self.experiment.name}: there is no scale {self.scale}, only {has}")
        arms = self.experiment.arms(self.scale)
        known = sorted({arm.method for arm in arms})
        for method in self.methods:
            if method not in known:
                raise ConfigError(
                    f"--methods {method}: {self.experiment.name} has {', '.join(known)}"
                )
        return [arm for arm in arms if not self.methods or arm.method in self.methods]

    def config(self, arm: Arm, seed: int) -> Config:
        """Of one training."""
        own = [f"train.seed={seed}", f"data.seed={seed}", *self.settings]
        settings = [*self.experiment.settings(arm, self.scale), *own]
        recipe = self.experiment.recipe[self.scale]
        return parse_config(
            read_recipe(recipe, scale=self.scale, settings=settings),
            source=f"{self.experiment.name}, {arm.label}",
        )


def run_experiment(plan: Plan, *, console: Console) -> list[Path]:
    """Do what is left of the plan; a finished training or measurement is not done again.

    Returns:
        the files that hold the results.
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
    results: list[Result] = []
    plan.folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    with progress_bar(console) as progress:
        whole = progress.add_task(plan.experiment.name, total=len(jobs), note="")
        for arm, seed in jobs:
            note = f"{arm.label} {' '.join(f'{k}={v}' for k, v in arm.show.items())}"
            progress.update(whole, note=note + ("" if seed is None else f" seed {seed}"))
            if seed is None:
                cost = _cost(plan, arm)
                results += [
                    Result(arm, None, name, value)
                    for name, value in (asdict(cost) | {"step_ms": cost.step_ms}).items()
                    if value is not None
                ]
            else:
                run = plan.folder / "runs" / arm.slug / f"seed-{seed}"
                config = plan.config(arm, seed)
                if not RunFolder(run).test.is_file():
                    train(config, run, resume=True, console=console, progress=progress)
                    evaluate(run, console=console, progress=progress)
                scores = json.loads(RunFolder(run).test.read_text())
                results += [Result(arm, seed, task, score) for task, score in scores.items()]
            paths = _write(plan, arms, results)
            progress.advance(whole)
    return paths


def _cost(plan: Plan, arm: Arm) -> Cost:
    """Measured in a process of its own, or what was measured before."""
    path = plan.folder / "costs" / f"{arm.slug}.json"
    if path.is_file():
        return Cost(**json.loads(path.read_text()))
    cost = cost_of(plan.config(arm, 0), steps=plan.steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(cost), indent=2) + "\n")
    partial.replace(path)
    return cost


def _write(plan: Plan, arms: Sequence[Arm], results: Sequence[Result]) -> list[Path]:
    """All results so far: the numbers, the table, the figure."""
    numbers, table = plan.folder / "results.csv", plan.folder / "table.md"
    figure = plan.folder / "figure.png"
    write_csv(numbers, results)
    seen = [arm for arm in arms if any(result.arm == arm for result in results)]
    match plan.experiment.kind:
        case "runs":
            text = per_run(seen, results, "majority")
            draw_scores(figure, seen, results)
        case "size":
            text = markdown(seen, results)
            draw_lines(figure, results, x="side", task="majority")
        case "grid":
            text = markdown(seen, results)
            draw_grid(figure, results)
        case _:
            text = markdown(seen, results)
            draw_scores(figure, seen, results)
    partial = table.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(table)
    return [numbers, table, figure]
