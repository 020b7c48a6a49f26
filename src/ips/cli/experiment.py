"""`ips experiment`: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, BadParameter, Option

from ips import api
from ips.cli.allocator import keep_freed_memory
from ips.cli.app import app, err, fail, hints, print_message, print_table
from ips.cli.options import Device, Scale, Settings, Shard
from ips.work import Place


@app.command()
def experiment(
    name: Annotated[
        str | None,
        Argument(metavar="NAME", help="Name of an experiment; omit it to list all"),
    ] = None,
    scale: Annotated[
        Scale, Option(help="Scale of the recipes: for a laptop, or as in the paper")
    ] = "laptop",
    seeds: Annotated[
        int | None,
        Option(min=1, help="Number of random seeds per row; that of the paper by default"),
    ] = None,
    methods: Annotated[
        str | None, Option(metavar="NAME,NAME,…", help="Methods to run, such as ips,rps,cnn")
    ] = None,
    part: Annotated[
        Literal["all", "scores", "costs"],
        Option(help="Part to run: training (scores), time and memory of a step (costs), or both"),
    ] = "all",
    settings: Settings = None,
    steps: Annotated[
        str,
        Option(
            metavar="INTEGER|epoch",
            help="Number of training steps to measure, or epoch; the first and last are ignored",
        ),
    ] = "4",
    limit_gb: Annotated[
        float,
        Option(
            min=0,
            help="Memory limit of a measurement: the costs of a DeepMIL row that would exceed it "
            "are computed from smaller samples",
        ),
    ] = 16.0,
    out: Annotated[
        Path | None,
        Option(metavar="DIR", help="Output folder; runs/experiments/NAME-SCALE by default"),
    ] = None,
    shard: Shard = None,
    device: Device = "auto",
) -> None:
    """Reproduce a table or figure of the paper.

    The same command continues an interrupted experiment. With --shard, several processes train side
    by side into the same folder; each adds its results to the table.
    """
    if name is None:
        from ips.experiments import EXPERIMENTS

        rows = [[e.name, e.description, ", ".join(e.recipes)] for e in EXPERIMENTS.values()]
        print_table(["experiment", "what it shows", "scales"], rows)
        return
    measured = _steps(steps)
    keep_freed_memory()
    folder = out or Path("runs/experiments") / f"{name}-{scale}"
    with hints(f"run the same command again to continue (results so far in {folder})"):
        result = api.experiment(
            name,
            out=folder,
            scale=scale,
            seeds=seeds,
            methods=[word for word in (methods or "").split(",") if word],
            part=part,
            settings=settings or [],
            steps=measured,
            limit_gb=limit_gb,
            shard=Place.parse(shard=shard).shard,
            console=err,
        )
    if result.files:
        print_message((folder / "table.md").read_text())
        print_message("written: " + ", ".join(map(str, result.files)))
    if result.failures:
        fail("some parts failed: " + "; ".join(result.failures))


def _steps(text: str) -> int | Literal["epoch"]:
    if text == "epoch":
        return "epoch"
    if not text.isdecimal() or int(text) < 3:
        raise BadParameter(
            f"{text!r} is neither epoch nor a number of at least 3", param_hint="--steps"
        )
    return int(text)
