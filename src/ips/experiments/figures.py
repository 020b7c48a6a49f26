"""Figures of the experiments: scores by method, lines against image size, the grid of M and I."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from ips.bench.figures import COLOURS, add_axes, save_figure
from ips.experiments.arms import MICRO_BATCH, Arm
from ips.experiments.tables import EFFICIENCY, Result, is_computed, values_of
from ips.explain.colours import INK, MUTED

_TITLES = {
    "memory_gb": "peak memory, GB",
    "step_ms": "time of a step, ms",
    "iterations": "iterations of the selection",
}
_MICRO_BATCHES = {
    "fixed": "micro-batches of a fixed size",
    "B·I": "B·I patches at once, as in the paper",
}
_X_TITLES = {"side": "side of the image, px", "images": "training images"}
_UNITS = {"memory_gb": "GB", "step_ms": "ms"}
_TITLE_SIZE = 10.5
_NOTE: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "size": 8, "color": MUTED}


def draw_scores(path: Path, arms: Sequence[Arm], results: Sequence[Result]) -> None:
    """Draw a row for every arm and a panel for every task: a dot for each run, a bar for the mean.

    If the costs of a step were measured, a panel with its memory follows, and, if nothing was
    trained, one with its time.
    """
    names = list(dict.fromkeys(r.name for r in results if r.measure is None))
    tasks = [name for name in names if name not in EFFICIENCY]
    costs = ["memory_gb"] if tasks else ["memory_gb", "step_ms"]
    panels = [*tasks, *(name for name in costs if name in names)]
    sizes = [", ".join(f"{k} {v}" for k, v in arm.sizes.items() if v != "–") for arm in arms]
    labels = [f"{arm.label}  {size}".strip() for arm, size in zip(arms, sizes, strict=True)]
    left = max(2.7, 0.3 + 0.07 * max(map(len, labels)))
    width, height = left + 0.5 + 2.4 * len(panels), 1.3 + 0.3 * len(arms)
    figure = _figure(width, height)
    step = (width - left - 0.3) / len(panels)
    for number, name in enumerate(panels):
        box = (left + number * step, 0.6, step - 0.3, height - 1.1)
        axes = add_axes(figure, box, title=_TITLES.get(name, name), size=_TITLE_SIZE)
        for row, arm in enumerate(arms):
            values = _plot_values(results, arm, name)
            if values:
                colour = COLOURS[0 if arm.method in ("ips", "ips-deepmil") else -1]
                computed = name in EFFICIENCY and is_computed(results, arm)
                face = "white" if computed else colour
                axes.barh(row, fmean(values), color=colour, height=0.62, alpha=0.35)
                dots = [row] * len(values)
                axes.plot(values, dots, "o", color=colour, mfc=face, ms=4, clip_on=False)
                if computed:
                    axes.annotate("computed", (max(values), row), va="center", **_NOTE)
        axes.set_ylim(len(arms) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.set_yticks(range(len(arms)), labels if number == 0 else [""] * len(arms))
        axes.tick_params(axis="y", labelsize=9, labelcolor=INK, pad=6)
        axes.set_xlim(left=0, right=100 if name in tasks else None)
        axes.set_xlabel("%" if name in tasks else _UNITS[name], color=MUTED, size=9)
    save_figure(figure, path)


def draw_lines(
    path: Path, arms: Sequence[Arm], results: Sequence[Result], *, x: str, panels: Sequence[str]
) -> None:
    """Draw a panel for every task or cost against the size ``x``: a line for the means of a label.

    Dots are the runs.
    """
    figure = _figure(0.55 + 3.65 * len(panels), 4.2)
    width = figure.get_figwidth()
    labels = list(dict.fromkeys(arm.label for arm in arms))
    for number, name in enumerate(panels):
        box = (0.75 + 3.65 * number, 1.0, 3.0, 2.6)
        axes = add_axes(figure, box, title=_TITLES.get(name, f"{name}, %"), size=_TITLE_SIZE)
        for colour, label in zip(COLOURS, labels, strict=False):
            points = sorted(
                (_number(arm.sizes[x]), values)
                for arm in arms
                if arm.label == label and (values := _plot_values(results, arm, name))
            )
            sizes = [size for size, _ in points]
            axes.plot(sizes, [fmean(values) for _, values in points], "-", color=colour, lw=2)
            for size, values in points:
                axes.plot([size] * len(values), values, "o", color=colour, ms=5, alpha=0.7)
        axes.set_ylim(bottom=0, top=None if name in EFFICIENCY else 102)
        axes.set_xlabel(_X_TITLES[x], color=MUTED, size=9)
    left = 0.75
    for colour, label in zip(COLOURS, labels, strict=False):
        figure.text(left / width, 0.04, f"● {label}", color=colour, size=10)
        left += 0.5 + 0.085 * len(label)
    save_figure(figure, path)


def draw_memory(
    path: Path, arms: Sequence[Arm], results: Sequence[Result], *, largest: int
) -> None:
    """Draw the memory column of Table 2 against N, with the paper's numbers beside ours.

    A line joins the largest values of a method. Dots are measured, rings are computed from smaller
    samples, and crosses on a dotted line are the paper's.

    Args:
        largest: N of an arm that uses all patches.
    """
    figure = _figure(9.0, 5.2)
    title = "Peak memory of a training step with 16 slides"
    axes = add_axes(figure, (0.75, 1.15, 7.9, 3.4), title=title, size=12)
    labels = list(dict.fromkeys(arm.label for arm in arms))
    ours: dict[str, dict[int, float]] = {label: {} for label in labels}
    paper: dict[str, dict[int, float]] = {label: {} for label in labels}
    for arm in arms:
        colour, N = COLOURS[labels.index(arm.label)], _number(arm.sizes["N"]) or largest
        if (published := arm.published.get("memory_gb")) is not None:
            value = float(published)
            paper[arm.label][N] = max(value, paper[arm.label].get(N, 0))
            axes.plot(N, value, "x", color=colour, ms=7, mew=1.5, alpha=0.7)
        for value in values_of(results, arm, "memory_gb"):
            ours[arm.label][N] = max(value, ours[arm.label].get(N, 0))
            face = "white" if is_computed(results, arm) else colour
            axes.plot(N, value, "o", color=colour, mfc=face, mew=1.5, ms=6, zorder=3)
    for number, label in enumerate(labels):
        colour = COLOURS[number]
        axes.plot(*zip(*sorted(ours[label].items()), strict=True), "-", color=colour, lw=2)
        if paper[label]:
            axes.plot(*zip(*sorted(paper[label].items()), strict=True), ":", color=colour, lw=1.5)
        figure.text(0.083 + 0.2 * number, 0.085, f"● {label}", color=colour, size=10)
    note = "● measured here    ○ computed from smaller samples    × paper, GPU memory"
    figure.text(0.083, 0.03, note, color=MUTED, size=9)
    axes.set_xlim(0, 1.04 * largest)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_xlabel("N, patches of each slide", color=MUTED, size=9)
    axes.set_ylabel("GB", color=MUTED, size=9)
    save_figure(figure, path)


def draw_grid(path: Path, arms: Sequence[Arm], results: Sequence[Result]) -> None:
    """Draw Figure 4: memory, time of a step and number of iterations for every M and I.

    A column for every size of micro-batch, with common colours.
    """
    keeps = sorted({arm.sizes["M"] for arm in arms}, key=int)
    chunks = sorted({arm.sizes["I"] for arm in arms}, key=lambda i: (i == "all", _number(i)))
    variants = list(dict.fromkeys(arm.sizes.get(MICRO_BATCH, "") for arm in arms))

    def grid(name: str, variant: str) -> npt.NDArray[np.float64]:
        values = np.full((len(keeps), len(chunks)), np.nan)
        for arm in arms:
            if arm.sizes.get(MICRO_BATCH, "") == variant:
                found = _iterations(arm) if name == "iterations" else values_of(results, arm, name)
                if found:
                    values[keeps.index(arm.sizes["M"]), chunks.index(arm.sizes["I"])] = found[0]
        return values

    figure = _figure(0.7 + 4.15 * (len(variants) + 1), 8.8)
    for row, name in enumerate(("memory_gb", "step_ms")):
        grids = [grid(name, variant) for variant in variants]
        for column, (variant, values) in enumerate(zip(variants, grids, strict=True)):
            box = (0.8 + 4.15 * column, 5.0 - 4.2 * row, 3.3, 3.0)
            title = f"{_TITLES[name]}\n{_MICRO_BATCHES.get(variant, variant)}"
            axes = add_axes(figure, box, title=title, size=_TITLE_SIZE)
            _draw_cells(axes, values, keeps, chunks, colours=np.stack(grids), of=name)
    values = grid("iterations", variants[0])
    box = (0.8 + 4.15 * len(variants), 5.0, 3.3, 3.0)
    axes = add_axes(figure, box, title=_TITLES["iterations"], size=_TITLE_SIZE)
    _draw_cells(axes, values, keeps, chunks, colours=values, of="iterations")
    save_figure(figure, path)


def _draw_cells(
    axes: Axes,
    values: npt.NDArray[np.float64],
    keeps: Sequence[str],
    chunks: Sequence[str],
    *,
    colours: npt.NDArray[np.float64],
    of: str,
) -> None:
    """Draw values as coloured cells with numbers; the colours span the range of ``colours``."""
    low, high = np.nanmin(colours), np.nanmax(colours)
    axes.imshow(values, cmap="viridis", aspect="auto", origin="lower", vmin=low, vmax=high)
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            text = f"{value:.2f}" if of == "memory_gb" else f"{value:,.0f}"
            colour = INK if value > low + 0.6 * (high - low) else "white"
            axes.text(column, row, text, ha="center", va="center", size=8, color=colour)
    axes.grid(visible=False)
    axes.set_xticks(range(len(chunks)), chunks)
    axes.set_yticks(range(len(keeps)), keeps)
    axes.set_xlabel("I", color=MUTED)
    axes.set_ylabel("M", color=MUTED)


def _iterations(arm: Arm) -> list[float]:
    """Number of iterations of the selection, ceil((N - M) / I)."""
    M, I, N = (arm.sizes[key] for key in "MIN")  # noqa: E741
    return [1 if I == "all" else math.ceil((_number(N) - int(M)) / int(I))]


def _plot_values(results: Sequence[Result], arm: Arm, name: str) -> list[float]:
    """Values of an arm to plot; scores in per cent."""
    scale = 1 if name in EFFICIENCY else 100
    return [scale * value for value in values_of(results, arm, name)]


def _number(text: str) -> int:
    return int(text.replace(",", "")) if text != "all" else 0


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=130, facecolor="white")
