"""`ips bench`: time and memory against the paper as written."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, say, show_table, told
from ips.errors import ConfigError

if TYPE_CHECKING:
    import torch

    from ips.bench.report import Report

bench = typer.Typer(help="Measure time and memory, as ratios.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Out = Annotated[Path, typer.Option(metavar="DIR", help="where JSON and pictures go")]
Quick = Annotated[
    bool, typer.Option("--quick", help="tiny sizes, to see that it works; the numbers mean nothing")
]
Rounds = Annotated[int, typer.Option(min=1, help="timed runs of every arm")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda; the GPU where there is one")]
_OUT = Path("runs/bench")


class SelectionCase(StrEnum):
    """What to select from."""

    megapixel_mnist = "megapixel-mnist"
    dense = "dense"
    features = "features"


@bench.command()
@told
def selection(
    out: Out = _OUT,
    quick: Quick = False,
    rounds: Rounds = 3,
    case: Annotated[
        list[SelectionCase] | None, typer.Option(help="one or several; all by default")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="images; 16 by default")] = None,
    device: Device = None,
) -> None:
    """The select step: speed, and whether the same patches are selected."""
    from ips.bench.selection import CASES, bench_selection

    report = bench_selection(
        case or CASES, rounds=rounds, batch=batch, device=_device(device), quick=quick, log=say
    )
    _finish(report, out)


@bench.command()
@told
def step(
    out: Out = _OUT,
    quick: Quick = False,
    rounds: Rounds = 3,
    batch: Annotated[int, typer.Option(min=1, help="images of a step")] = 16,
    device: Device = None,
) -> None:
    """A whole training step on megapixel MNIST."""
    from ips.bench.step import bench_step

    report = bench_step(rounds=rounds, batch=batch, device=_device(device), quick=quick, log=say)
    _finish(report, out)


@bench.command()
@told
def memory(
    out: Out = _OUT,
    quick: Quick = False,
    sides: Annotated[
        str, typer.Option(metavar="PX,PX,…", help="sides of the images")
    ] = "1000,2000,4000,6000,8000,10000",
    arm: Annotated[
        list[str] | None, typer.Option(help="eager, sequential, lazy, cnn; all by default")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="images of a step; 16 in the paper")] = 4,
    width: Annotated[int, typer.Option(min=1, help="channels of the encoder's first stage")] = 64,
    limit_gb: Annotated[float, typer.Option(help="the CNN stops where it would need more")] = 6.0,
) -> None:
    """Peak memory of a training step against the size of the images on disk."""
    from ips.bench.memory import ARMS, bench_memory

    wrong = [name for name in arm or [] if name not in ARMS]
    if wrong:
        raise ConfigError(f"--arm {wrong[0]}: take {', '.join(ARMS)}")
    report = bench_memory(
        out / "images",
        sides=_numbers(sides),
        arms=arm or ARMS,
        batch=batch,
        width=width,
        limit_gb=limit_gb,
        quick=quick,
        log=say,
    )
    _finish(report, out)


@bench.command()
@told
def read(
    out: Out = _OUT,
    quick: Quick = False,
    rounds: Rounds = 3,
    side: Annotated[int, typer.Option(min=1024, help="of the picture in pixels")] = 4096,
    patch: Annotated[int, typer.Option(min=2, max=1024, help="side of a patch in pixels")] = 128,
) -> None:
    """Patches per second of every reader, and what reading ahead is worth."""
    from ips.bench.read import bench_read

    _finish(bench_read(side=side, patch=patch, rounds=rounds, quick=quick, log=say), out)


def _finish(report: Report, folder: Path) -> None:
    show_table(report.header, report.rows)
    for note in report.notes:
        say(note)
    say("written: " + ", ".join(str(path) for path in report.save(folder)))


def _device(name: str | None) -> torch.device:
    import torch

    if name not in (None, "cpu", "cuda"):
        raise ConfigError(f"--device {name}: take cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: torch finds no GPU here, take cpu")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--sides {text}: give whole numbers, as 1000,2000") from None
