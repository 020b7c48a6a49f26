"""Results as a tidy CSV file, and as a Markdown table with means over seeds."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ips.experiments.arms import Arm
from ips.files import write_text
from ips.localisation import CAVEAT

Column = tuple[str, list[str]]  # heading, a cell per arm


@dataclass(frozen=True)
class Result:
    """One number.

    Attributes:
        seed: seed of the training; None for a measurement without training.
        name: a task, or one of ``EFFICIENCY``.
        value: the number; scores are between 0 and 1.
        computed: whether it was computed from smaller sizes instead of measured.
        measure: which number it is: None for a score or cost, a key of
            `ips.localisation.MEASURES`, `MACRO_F1`, or `BEGUN`.
    """

    arm: Arm
    seed: int | None
    name: str
    value: float
    computed: bool = False
    measure: str | None = None


_HEADINGS = {
    "memory_gb": "memory [GB]",
    "select_ms": "selection [ms]",
    "rest_ms": "rest [ms]",
    "step_ms": "step [ms]",
}
EFFICIENCY = tuple(_HEADINGS)
MACRO_F1 = "macro-f1"
"""Measure of a run with lopsided labels (`ips.task_scores`)."""
BEGUN = "begun"
"""Measure of a run that is 1 if its training has begun, and 0 if not (`ips.training.start`)."""
_LOCALISATION = {
    "pointing": "top patch on object [%]",
    "pointing_right": "if correct [%]",
    "average_precision": "AP of patches [%]",
    "recall": "objects selected [%]",
    "froc": "FROC [%]",
}


def write_csv(path: Path, results: Sequence[Result]) -> None:
    """Write one line per number: arm, its settings, seed, name, value, and how it was obtained."""
    size_names = _size_names(result.arm for result in results)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["label", "method", *size_names, "seed", "name", "value", "source"])
    for r in results:
        seed = "" if r.seed is None else r.seed
        cells = [r.arm.sizes.get(key, "") for key in size_names]
        source = "computed" if r.computed else "measured"
        name = r.name if r.measure is None else f"{r.name} {r.measure}"
        number = [name, f"{r.value:.6g}", source]
        writer.writerow([r.arm.label, r.arm.method, *cells, seed, *number])
    write_text(path, text.getvalue())


def markdown(arms: Sequence[Arm], results: Sequence[Result]) -> str:
    """The table as printed in the paper, with the published numbers beside each column."""
    names = list(dict.fromkeys(r.name for r in results if r.measure is None))
    names.sort(key=lambda name: name in EFFICIENCY)
    columns: list[Column] = []
    for name in names:
        cells = [_cell(name, _matching(results, arm, name)) for arm in arms]
        columns += [(_HEADINGS.get(name, f"{name} [%]"), cells), *_published(arms, name)]
        if any(r.measure == MACRO_F1 for r in results if r.name == name):
            cells = [_cell(name, _matching(results, arm, name, MACRO_F1)) for arm in arms]
            columns.append(("macro F1 [%]", cells))
    begun = {
        arm.slug: [r.value for r in results if (r.arm, r.measure) == (arm, BEGUN)] for arm in arms
    }
    if any(begun.values()):
        cells = [f"{sum(runs):.0f} of {len(runs)}" if runs else "–" for runs in begun.values()]
        columns.append(("begun", cells))
    return _table(arms, columns)


def localisation_table(arms: Sequence[Arm], results: Sequence[Result]) -> str:
    """Where attention is: a line for every arm and task with such numbers; empty without any."""
    found = dict.fromkeys((r.arm.slug, r.name) for r in results if r.measure in _LOCALISATION)
    rows = [(arm, task) for arm in arms for slug, task in found if slug == arm.slug]
    if not rows:
        return ""
    columns: list[Column] = [("task", [task for _, task in rows])]
    for measure, heading in _LOCALISATION.items():
        cells = [_cell(task, _matching(results, arm, task, measure)) for arm, task in rows]
        columns.append((heading, cells))
    table = _table([arm for arm, _ in rows], columns)
    return f"{table}\n{CAVEAT[0].upper()}{CAVEAT[1:]}.\n"


def per_run(arms: Sequence[Arm], results: Sequence[Result], task: str) -> str:
    """Appendix E: the score of every run, in ascending order."""
    scores = [sorted(values_of(results, arm, task)) for arm in arms]
    runs = [
        (f"run {n + 1}", [f"{100 * row[n]:.1f}" if n < len(row) else "–" for row in scores])
        for n in range(max(map(len, scores), default=0))
    ]
    return _table(arms, [*runs, *_published(arms, task)])


def values_of(results: Sequence[Result], arm: Arm, name: str) -> list[float]:
    """All values of ``name`` that belong to an arm."""
    return [r.value for r in _matching(results, arm, name)]


def is_computed(results: Sequence[Result], arm: Arm) -> bool:
    """Whether the costs of an arm were computed instead of measured."""
    return any(r.computed for r in results if r.arm == arm)


def _matching(
    results: Sequence[Result], arm: Arm, name: str, measure: str | None = None
) -> list[Result]:
    return [r for r in results if (r.name, r.measure) == (name, measure) and r.arm == arm]


def _cell(name: str, results: Sequence[Result]) -> str:
    if not results:
        return "–"
    values = [r.value for r in results]
    mean = statistics.fmean(values)
    if name in EFFICIENCY:
        text = f"{mean:.2f}" if name == "memory_gb" else f"{mean:,.0f}"
        return f"{text} (computed)" if results[0].computed else text
    text = f"{100 * mean:.1f}"
    return text if len(values) < 2 else f"{text} ± {100 * statistics.stdev(values):.1f}"


def _published(arms: Sequence[Arm], name: str) -> list[Column]:
    """The column of published numbers, if the paper has one."""
    if not any(name in arm.published for arm in arms):
        return []
    return [("paper", [arm.published.get(name, "–") for arm in arms])]


def _table(arms: Sequence[Arm], columns: Sequence[Column]) -> str:
    sizes = [(key, [arm.sizes.get(key, "–") for arm in arms]) for key in _size_names(arms)]
    columns = [("method", [arm.label for arm in arms]), *sizes, *columns]
    header = [heading for heading, _ in columns]
    rows = zip(*(cells for _, cells in columns), strict=True)
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _size_names(arms: Iterable[Arm]) -> list[str]:
    return list(dict.fromkeys(key for arm in arms for key in arm.sizes))
