"""`ips doctor`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import typer
from typer import Option

from ips import api
from ips.cli.app import app, fail, out, print_message, print_table


@app.command()
def doctor(
    device: Annotated[
        str | None,
        Option(help="Device, such as cuda, whose results to compare with those of the CPU"),
    ] = None,
) -> None:
    """Show versions, devices, readers, extras, memory and disk, and what is missing."""
    if device is not None:
        _compare(device)
        return
    findings = list(api.doctor())
    for topic, group in groupby(findings, key=lambda finding: finding.topic):
        print_table([topic, ""], [(one.name, one.value) for one in group])
    missing = [one for one in findings if one.remedy is not None]
    for one in missing:
        out.print(
            f"{one.name}: {one.value}: {one.remedy}", markup=False, highlight=False, soft_wrap=True
        )
    if not missing:
        out.print("nothing is missing")
    if any(one.needed for one in missing):
        raise typer.Exit(1)


def _compare(device: str) -> None:
    check = api.check_device(device, log=print_message)
    rows = [
        ("patches that both select", f"{check.same:.0%}"),
        ("relative difference of the loss", f"{check.loss:.1e}"),
        ("relative difference of the gradient", f"{check.gradient:.1e}"),
        ("speed of a step, as a factor of the CPU's", f"{check.speed:.1f}"),
    ]
    if check.growth is not None:
        rows.append(("peak memory with four times the patches, as a factor", f"{check.growth:.2f}"))
    print_table([check.device, ""], rows)
    if not check.agrees:
        fail(f"{check.device} does not compute what the CPU computes: update its driver and torch")
