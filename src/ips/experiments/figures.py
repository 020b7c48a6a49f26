"""The figures of the experiments: scores by method, lines over a size, the grid of M and I."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ips.experiments.arms import Arm
from ips.experiments.tables import EFFICIENCY, Result, by_arm, summary
from ips.explain.page import INK, MUTED, RULE

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#7b68ee", "#717581")


def draw_scores(path: Path, arms: Sequence[Arm], results: Sequence[Result]) -> None:
    """A row for every arm and a panel for every task: a dot for each run, a bar for the mean.

    Memory of a step follows where it was measured, and time where nothing was trained.
    """
    names = list(dict.fromkeys(r.name for r in results))
    tasks = [name for name in names if name not in EFFICIENCY]
    costs = ["memory_gb"] if tasks else ["memory_gb", "step_ms"]
    panels = [*tasks, *(name for name in costs if name in names)]
    width, height = 3.2 + 2.4 * len(panels), 1.3 + 0.3 * len(arms)
    figure = _figure(width, height)
    left = 2.7
    step = (width - left - 0.3) / len(panels)
    for number, name in enumerate(panels):
        box = (left + number * step, 0.6, step - 0.3, height - 1.1)
        axes = _axes(figure, box, title=_NAMES.get(name, name))
        values = by_arm(results, name)
        for row, arm in enumerate(arms):
            found = [_shown(name, value) for value in values.get(arm.slug, [])]
            if found:
                axes.barh(row, summary(found)[0], color=_colour(arm), height=0.62, alpha=0.35)
                axes.plot(found, [row] * len(found), "o", color=_colour(arm), ms=4, clip_on=False)
        axes.set_ylim(len(arms) - 0.4, -0.6)
        axes.set_yticks([])
        axes.set_xlim(left=0, right=100 if name in tasks else None)
        axes.set_xlabel("%" if name in tasks else _UNITS[name], color=MUTED, size=9)
        if number == 0:
            for row, arm in enumerate(arms):
                size = ", ".join(f"{k} {v}" for k, v in arm.show.items() if v != "–")
                text = f"{arm.label}  {size}".strip()
                axes.annotate(
                    text,
                    (-0.04, row),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="center",
                    size=9,
                    color=INK,
                )
    _save(figure, path)


def draw_lines(path: Path, results: Sequence[Result], *, x: str, task: str) -> None:
    """Figure 3: memory, time of a step and accuracy, a line for every label."""
    figure = _figure(11.5, 4.2)
    labels = list(dict.fromkeys(r.arm.label for r in results))
    for number, name in enumerate(("memory_gb", "step_ms", task)):
        title = _NAMES.get(name, f"{name}, %")
        axes = _axes(figure, (0.75 + 3.65 * number, 1.0, 3.0, 2.6), title=title)
        for colour, label in zip(_COLOURS, labels, strict=False):
            points: dict[int, list[float]] = {}
            for r in results:
                if r.arm.label == label and r.name == name:
                    place = int(r.arm.show[x].replace(",", ""))
                    points.setdefault(place, []).append(_shown(name, r.value))
            if points:
                places = sorted(points)
                means = [summary(points[p])[0] for p in places]
                axes.plot(places, means, "o-", color=colour, lw=2, ms=5)
        axes.set_ylim(bottom=0, top=102 if name == task else None)
        axes.set_xlabel("side of the image, px", color=MUTED, size=9)
    for number, (colour, label) in enumerate(zip(_COLOURS, labels, strict=False)):
        figure.text(0.065 + 0.16 * number, 0.04, f"● {label}", color=colour, size=10)
    _save(figure, path)


def draw_grid(path: Path, results: Sequence[Result]) -> None:
    """Figure 4: memory, time of a step and number of iterations for every M and I."""
    arms = list({r.arm.slug: r.arm for r in results}.values())
    keeps = sorted({int(arm.show["M"]) for arm in arms})
    chunks = sorted(
        {arm.show["I"] for arm in arms}, key=lambda i: math.inf if i == "all" else int(i)
    )
    figure = _figure(13.0, 4.6)
    values: dict[str, Callable[[Arm], float | None]] = {
        "memory_gb": lambda arm: _first(by_arm(results, "memory_gb").get(arm.slug)),
        "step_ms": lambda arm: _first(by_arm(results, "step_ms").get(arm.slug)),
        "iterations": _iterations,
    }
    for number, (name, value) in enumerate(values.items()):
        axes = _axes(figure, (0.8 + 4.15 * number, 0.8, 3.3, 3.2), title=_NAMES[name])
        table = np.full((len(keeps), len(chunks)), np.nan)
        for arm in arms:
            found = value(arm)
            if found is not None:
                table[keeps.index(int(arm.show["M"])), chunks.index(arm.show["I"])] = found
        axes.imshow(table, cmap="viridis", aspect="auto", origin="lower")
        middle = np.nanmin(table) + 0.6 * (np.nanmax(table) - np.nanmin(table))
        for (row, column), shown in np.ndenumerate(table):
            if not np.isnan(shown):
                text = f"{shown:.2f}" if name == "memory_gb" else f"{shown:,.0f}"
                ink = INK if shown > middle else "white"
                axes.text(column, row, text, ha="center", va="center", size=8, color=ink)
        axes.grid(visible=False)
        axes.set_xticks(range(len(chunks)), chunks)
        axes.set_yticks(range(len(keeps)), [str(keep) for keep in keeps])
        axes.set_xlabel("I", color=MUTED)
        axes.set_ylabel("M", color=MUTED)
    _save(figure, path)


_NAMES = {
    "memory_gb": "peak memory, GB",
    "step_ms": "time of a step, ms",
    "iterations": "iterations of the selection",
}
_UNITS = {"memory_gb": "GB", "step_ms": "ms"}


def _iterations(arm: Arm) -> float | None:
    """T = ceil((N - M) / I) of an arm that says what N is."""
    if not (N := arm.show.get("N")):
        return None
    M, I = int(arm.show["M"]), arm.show["I"]  # noqa: E741
    left = int(N.replace(",", "")) - M
    return 1 if I == "all" else math.ceil(left / int(I))


def _first(values: Sequence[float] | None) -> float | None:
    return values[0] if values else None


def _shown(name: str, value: float) -> float:
    return value if name in EFFICIENCY else 100 * value


def _colour(arm: Arm) -> str:
    return _COLOURS[0] if arm.method in ("ips", "ips-deepmil") else _COLOURS[-1]


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=130, facecolor="white")


def _axes(figure: Figure, box: tuple[float, float, float, float], *, title: str) -> Axes:
    """In inches from the lower left corner."""
    width, height = figure.get_size_inches()
    x, y, w, h = box
    axes = figure.add_axes((x / width, y / height, w / width, h / height))
    axes.set_title(title, loc="left", size=10.5, weight="bold", color=INK)
    axes.set_axisbelow(True)
    axes.grid(color=RULE, lw=0.6)
    axes.tick_params(labelsize=8, colors=MUTED, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    return axes


def _save(figure: Figure, path: Path) -> None:
    FigureCanvasAgg(figure)
    partial = path.with_suffix(".partial")
    figure.savefig(partial, format="png")
    partial.replace(path)
