"""`ips bench`: speed and memory relative to the published algorithm."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from ips import api
from ips.cli.app import app, print_message, print_table
from ips.cli.options import Device
from ips.errors import ConfigError
from ips.locks import lock_folder

if TYPE_CHECKING:
    from ips.bench.report import Report

bench = typer.Typer(
    help="Measure speed and memory relative to the published algorithm.", no_args_is_help=True
)
app.add_typer(bench, name="bench")

Out = Annotated[Path, Option(metavar="DIR", help="Output folder for JSON files and figures")]
Quick = Annotated[
    bool, Option("--quick", help="Use tiny sizes to test the benchmark; ignore the numbers then")
]
Rounds = Annotated[int, Option(min=1, help="Number of timed runs")]
_OUT = Path("runs/bench")


class Case(StrEnum):
    """Inputs of the selection benchmark; an enum, since typer cannot parse lists of literals."""

    megapixel_mnist = "megapixel-mnist"
    dense = "dense"
    features = "features"


@bench.command()
def selection(
    out: Out = _OUT,
    quick: Quick = False,
    rounds: Rounds = 3,
    case: Annotated[
        list[Case] | None, Option(help="Case to measure; repeatable, all by default")
    ] = None,
    batch: Annotated[int | None, Option(min=1, help="Number of images; 16 by default")] = None,
    device: Device = "auto",
) -> None:
    """Measure the selection step: speed, and whether it selects the same patches."""
    from ips.bench.speed import CASES

    with lock_folder(out, option="--out"):
        report = api.bench_selection(
            case or CASES, rounds=rounds, batch=batch, quick=quick, log=print_message
        )
        _save(report, out)


@bench.command()
def step(
    out: Out = _OUT,
    quick: Quick = False,
    rounds: Rounds = 3,
    batch: Annotated[int, Option(min=1, help="Number of images in a step")] = 16,
    device: Device = "auto",
) -> None:
    """Measure a whole training step on megapixel MNIST."""
    with lock_folder(out, option="--out"):
        report = api.bench_step(rounds=rounds, batch=batch, quick=quick, log=print_message)
        _save(report, out)


@bench.command()
def memory(
    out: Out = _OUT,
    quick: Quick = False,
    sides: Annotated[
        str, Option(metavar="PX,PX,…", help="Sides of the images in pixels")
    ] = "1000,2000,4000,6000,8000,10000",
    arm: Annotated[
        list[str] | None,
        Option(help="Loading mode (eager, sequential, lazy), or cnn; repeatable, all by default"),
    ] = None,
    batch: Annotated[int, Option(min=1, help="Number of images in a step; 16 in the paper")] = 4,
    width: Annotated[int, Option(min=1, help="Number of channels of the first encoder stage")] = 64,
    limit_gb: Annotated[
        float, Option(help="Memory limit in GB above which the CNN is not run")
    ] = 6.0,
) -> None:
    """Measure the peak memory of a training step against the size of the images on disk."""
    from ips.bench.memory import ARMS

    try:
        numbers = [int(part) for part in sides.split(",")]
    except ValueError:
        raise ConfigError(f"--sides {sides}: expected integers such as 1000,2000") from None
    with lock_folder(out, option="--out"):
        report = api.bench_memory(
            out / "images",
            sides=numbers,
            arms=arm or ARMS,
            batch=batch,
            width=width,
            limit_gb=limit_gb,
            quick=quick,
            log=print_message,
        )
        _save(report, out)


@bench.command()
def read(
    out: Out = _OUT,
    quick: Quick = False,
    rounds: Rounds = 3,
    side: Annotated[int, Option(min=1024, help="Side of the image in pixels")] = 4096,
    patch: Annotated[int, Option(min=2, max=1024, help="Side of a patch in pixels")] = 128,
) -> None:
    """Measure the patches per second of every image reader, with and without prefetching."""
    with lock_folder(out, option="--out"):
        report = api.bench_read(
            side=side, patch=patch, rounds=rounds, quick=quick, log=print_message
        )
        _save(report, out)


def _save(report: Report, folder: Path) -> None:
    print_table(report.header, report.rows)
    for note in report.notes:
        print_message(note)
    print_message("written: " + ", ".join(str(path) for path in report.save(folder)))
