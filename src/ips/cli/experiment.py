"""`ips experiment`: the paper's tables and figures."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import app, err, fail, say, show_table, told
from ips.cli.train import Scale
from ips.errors import ConfigError


class Part(StrEnum):
    """Of an experiment."""

    all = "all"
    scores = "scores"
    costs = "costs"


@app.command()
@told
def experiment(
    name: Annotated[str | None, typer.Argument(help="which; without it, what there is")] = None,
    scale: Annotated[Scale, typer.Option(help="for a laptop, or as published")] = Scale.laptop,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="trainings of each line; as the paper by default")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="M,M,…", help="only these, for instance ips,rps,cnn")
    ] = None,
    part: Annotated[
        Part, typer.Option(help="trained scores, costs of a step (without training), or both")
    ] = Part.all,
    set: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="for every line of the table")
    ] = None,
    steps: Annotated[
        int, typer.Option(min=3, help="of a measurement, first and last left out")
    ] = 4,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="runs/experiments/NAME-SCALE by default")
    ] = None,
) -> None:
    """Run a table or figure of the paper; again, it goes on where it was."""
    from ips.experiments import EXPERIMENTS, Plan, get_experiment, run_experiment

    if name is None:
        rows = [[e.name, e.description, ", ".join(e.recipes)] for e in EXPERIMENTS.values()]
        show_table(["experiment", "what it shows", "scales"], rows)
        return
    chosen = get_experiment(name)
    plan = Plan(
        experiment=chosen,
        scale=scale.value,
        seeds=seeds or chosen.seeds,
        folder=out or Path("runs/experiments") / f"{name}-{scale.value}",
        methods=[word for word in (methods or "").split(",") if word],
        settings=set or [],
        scores=part is not Part.costs and any(arm.trains for arm in chosen.arms(scale.value)),
        costs=part is not Part.scores,
        steps=steps,
    )
    if not plan.scores and not plan.costs:
        raise ConfigError(f"{name}: nothing in it is trained: leave out --part scores")
    try:
        paths, failed = run_experiment(plan, console=err)
    except KeyboardInterrupt:
        say(f"\ninterrupted: go on with the same command (results so far in {plan.folder})")
        raise typer.Exit(130) from None
    if paths:
        say((plan.folder / "table.md").read_text())
        say("written: " + ", ".join(map(str, paths)))
    if failed:
        fail("not all was done, " + "; ".join(failed))
