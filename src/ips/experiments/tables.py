"""Results as a tidy CSV and as a Markdown table, mean and standard deviation over seeds."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ips.experiments.arms import Arm


@dataclass(frozen=True)
class Result:
    """One number.

    Attributes:
        arm: whose it is.
        seed: of the training; None for what was measured without one.
        name: a task, or ``memory_gb``, ``select_ms``, ``rest_ms``, ``step_ms``.
        value: the number; scores are shares of 1.
    """

    arm: Arm
    seed: int | None
    name: str
    value: float


EFFICIENCY = ("memory_gb", "select_ms", "rest_ms", "step_ms")
_HEADINGS = {
    "memory_gb": "memory [GB]",
    "select_ms": "selection [ms]",
    "rest_ms": "rest [ms]",
    "step_ms": "step [ms]",
}


def write_csv(path: Path, results: Sequence[Result]) -> None:
    """A line for every number: arm, its settings, seed, name, value."""
    shown = list(dict.fromkeys(key for result in results for key in result.arm.show))
    header = ["label", "method", *shown, "seed", "name", "value"]
    partial = path.with_suffix(".partial")
    with partial.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for r in results:
            seed = "" if r.seed is None else r.seed
            cells = [r.arm.show.get(key, "") for key in shown]
            writer.writerow([r.arm.label, r.arm.method, *cells, seed, r.name, f"{r.value:.6g}"])
    partial.replace(path)


def markdown(arms: Sequence[Arm], results: Sequence[Result]) -> str:
    """The table as the paper prints it; beside each column what the paper has, where it has it."""
    shown = list(dict.fromkeys(key for arm in arms for key in arm.show))
    names = list(dict.fromkeys(r.name for r in results))
    names.sort(key=lambda name: name in EFFICIENCY)
    header = ["method", *shown]
    for name in names:
        header.append(_HEADINGS.get(name, f"{name} [%]"))
        if any(name in arm.published for arm in arms):
            header.append("paper")
    lines = [_row(header), _row("---" for _ in header)]
    for arm in arms:
        cells = [arm.label, *(arm.show.get(key, "–") for key in shown)]
        for name in names:
            values = [r.value for r in results if r.arm == arm and r.name == name]
            cells.append(_cell(name, values))
            if any(name in other.published for other in arms):
                cells.append(arm.published.get(name, "–"))
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def per_run(arms: Sequence[Arm], results: Sequence[Result], task: str) -> str:
    """Appendix E: the score of every run, sorted."""
    shown = list(dict.fromkeys(key for arm in arms for key in arm.show))
    scores = {
        arm.slug: sorted(r.value for r in results if r.arm == arm and r.name == task)
        for arm in arms
    }
    most = max((len(values) for values in scores.values()), default=0)
    header = ["method", *shown, *(f"run {n + 1}" for n in range(most))]
    paper = any(task in arm.published for arm in arms)
    lines = [_row([*header, *["paper"] * paper]), _row(["---"] * (len(header) + paper))]
    for arm in arms:
        values = [f"{100 * v:.1f}" for v in scores[arm.slug]]
        cells = [arm.label, *(arm.show.get(key, "–") for key in shown)]
        cells += [*values, *["–"] * (most - len(values))]
        lines.append(_row([*cells, *[arm.published.get(task, "–")] * paper]))
    return "\n".join(lines) + "\n"


def summary(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and, of two and more, standard deviation."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _cell(name: str, values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean, spread = summary(values)
    if name in EFFICIENCY:
        return f"{mean:.2f}" if name == "memory_gb" else f"{mean:,.0f}"
    text = f"{100 * mean:.1f}"
    return text if spread is None else f"{text} ± {100 * spread:.1f}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def by_arm(results: Sequence[Result], name: str) -> Mapping[str, list[float]]:
    """All values of ``name``, by the arms' slugs."""
    found: dict[str, list[float]] = {}
    for result in results:
        if result.name == name:
            found.setdefault(result.arm.slug, []).append(result.value)
    return found
