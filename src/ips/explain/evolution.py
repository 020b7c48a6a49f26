"""How attention over one image changes while a model learns, and the file that keeps it.

Letters: K patches kept of the image. Lengths on the page are in inches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from ips.errors import PatchError, RunError
from ips.explain.marks import boxes, label_spots
from ips.explain.page import DPI, MUTED, PALETTE, RULE, Colour, Page, chip, over_epochs, wrapped
from ips.models import Prediction
from ips.patches import Coords, PatchSource
from ips.patches.thumbnail import Thumbnail, resize

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_MAPS, _COLUMNS = 6, 3
_SIDE = 2.7  # of the square that a map fits into
_CROPS = 4  # beside each other below it
_CROP, _CAPTION = 0.58, 0.3
_MARGIN, _BETWEEN, _LINE = 0.3, 0.4, 0.2
_CURVE = 1.35
_COLOURS = colormaps["viridis"]


@dataclass(frozen=True, eq=False)
class Moment:
    """Where a model looked after one epoch: the patches that it kept of one image.

    Attributes:
        epoch: counted from 1.
        indices: ``(K,)`` patch numbers in the image's own numbering.
        coords: ``(K, 2)`` their top-left corners, x, y in full-resolution pixels.
        extent: side of a patch in full-resolution pixels, None if its source does not say.
        attention: ``(K,)``, sums to 1.
    """

    epoch: int
    indices: Numbers
    coords: Coords
    extent: int | None
    attention: Floats

    def __post_init__(self) -> None:
        kept = len(self.indices)
        shapes = self.indices.shape, self.coords.shape, self.attention.shape
        if not kept or shapes != ((kept,), (kept, 2), (kept,)):
            raise ValueError(f"epoch {self.epoch}: expected (K,), (K, 2) and (K,), got {shapes}")

    @classmethod
    def of(cls, prediction: Prediction, *, epoch: int) -> Moment:
        """The moment that a prediction shows."""
        return cls(
            epoch=epoch,
            indices=prediction.indices.cpu().numpy(),
            coords=prediction.coords,
            extent=prediction.extent,
            attention=prediction.attention.detach().double().cpu().numpy(),
        )

    @property
    def entropy(self) -> float:
        """Of the attention, in nats: 0 where one patch has all of it, `highest_entropy` at most."""
        p = self.attention / self.attention.sum()
        return float(-np.sum(p * np.log(np.where(p > 0, p, 1))))

    @property
    def highest_entropy(self) -> float:
        """ln K: that of patches which all have the same attention."""
        return log(len(self.indices))


def append_moment(path: Path, moment: Moment) -> None:
    """Add a line of JSON to ``path``; a resumed run drops what it is about to do again."""
    moments = [old for old in read_moments(path) if old.epoch < moment.epoch]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text("".join(f"{_written(m)}\n" for m in [*moments, moment]), encoding="utf-8")
    partial.replace(path)


def read_moments(path: Path) -> list[Moment]:
    """What `append_moment` has written, by epoch: nothing where there is no file yet."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    moments: list[Moment] = []
    for number, line in enumerate(lines, start=1):
        try:
            moments.append(_read(line))
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, json.JSONDecodeError) and number == len(lines):
                break  # torn: the machine stopped while it was written
            raise RunError(
                f"{path}: line {number} is not the attention of an epoch; delete the file, and the "
                "picture starts with the next epoch"
            ) from error
    return moments


def _written(moment: Moment) -> str:
    values = {
        "epoch": moment.epoch,
        "extent": moment.extent,
        "indices": moment.indices.tolist(),
        "coords": moment.coords.tolist(),
        "attention": [float(f"{a:.6g}") for a in moment.attention.tolist()],
    }
    return json.dumps(values, separators=(",", ":"))


def _read(line: str) -> Moment:
    values = json.loads(line)
    return Moment(
        epoch=int(values["epoch"]),
        indices=np.array(values["indices"], dtype=np.int64),
        coords=np.array(values["coords"], dtype=np.int64),
        extent=values["extent"],
        attention=np.array(values["attention"], dtype=np.float64),
    )


def draw_evolution(
    path: Path, *, source: PatchSource, moments: Sequence[Moment], title: str, top: int = 4
) -> None:
    """One PNG: attention over one image at up to six epochs, and its entropy at all of them.

    All maps share one scale, up to the strongest patch of any of them: attention that is spread
    evenly is dull everywhere, and brightens where it gathers.

    Args:
        path: of the PNG.
        source: the image's patches.
        moments: of ascending epochs; of more than six, six at even steps have a map.
        title: what to write above.
        top: how many patches of each map to number and to show below it.
    """
    if len(source.shape) != 3:
        raise PatchError(
            f"{source.name}: it holds features, so there are no pixels to draw attention over; "
            "give the patches of the image itself"
        )
    if not moments:
        raise RunError(f"{path}: there is no epoch to draw yet, train for at least one")
    chosen = evenly(moments, _MAPS)
    most = max(float(np.nan_to_num(moment.attention).max()) for moment in chosen)
    shown = min(top, max(len(moment.indices) for moment in chosen))
    scene = _Scene(source, source.parts[0].thumbnail(round(_SIDE * DPI)), most, shown)

    columns = len(chosen) if len(chosen) <= _COLUMNS else ceil(len(chosen) / 2)
    line = max(columns, 2) * (_SIDE + _BETWEEN) - _BETWEEN  # the curve needs room for two
    header = wrapped(title, int(line * 12.5))
    body = 0.35 + _LINE * (header.count("\n") + 1)
    pitch = 0.26 + scene.size[1] + 0.1 + ceil(shown / _CROPS) * (_CROP + _CAPTION) + 0.2
    curve = body + ceil(len(chosen) / columns) * pitch + 0.3
    bar = curve + _CURVE + 0.65
    note = wrapped(
        f"Numbers: the {shown} patches with most attention in that epoch, and their per cent of it."
        " Entropy: highest (dashed) where all patches kept have the same attention; the dots are "
        "the epochs above.",
        int(line * 16),
    )
    page = Page(line + 2 * _MARGIN, bar + 0.6 + 0.17 * (note.count("\n") + 1))
    page.write(_MARGIN, 0.2, header, size=10, weight="bold", linespacing=1.3)
    for i, moment in enumerate(chosen):
        x, y = _MARGIN + i % columns * (_SIDE + _BETWEEN), body + i // columns * pitch
        page.write(x, y, f"epoch {moment.epoch}", size=9.5, weight="bold")
        _draw_moment(page, (x, y + 0.26), moment, scene)
    _draw_entropy(page, curve, line=line, moments=moments, chosen=chosen)
    _draw_bar(page, bar, most)
    page.write(_MARGIN, bar + 0.45, note, size=8, color=MUTED, linespacing=1.35)
    page.save(path)


def evenly(moments: Sequence[Moment], count: int) -> list[Moment]:
    """``count`` moments at even steps, the first and the last among them; all if they are fewer."""
    steps = np.linspace(0, len(moments) - 1, min(count, len(moments)))
    return [moments[i] for i in np.rint(steps).astype(int).tolist()]


@dataclass(frozen=True)
class _Scene:
    """What the maps share: the image, the attention that is brightest, how many are numbered."""

    source: PatchSource
    view: Thumbnail
    most: float
    shown: int

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of a map on the page."""
        height, width = self.view.pixels.shape[:2]
        inch = max(width, height) / _SIDE
        return width / inch, height / inch

    def strength(self, attention: Floats) -> Floats:
        """Attention ``(K,)`` from 0 to 1: the square root of its share of the brightest."""
        return np.sqrt(np.nan_to_num(attention) / max(self.most, 1e-12))


def _draw_moment(page: Page, corner: tuple[float, float], moment: Moment, scene: _Scene) -> None:
    """A map, and the crops of its strongest patches below."""
    x, y = corner
    width, height = scene.size
    order = np.argsort(-moment.attention, kind="stable")
    strength = scene.strength(moment.attention[order])
    colours = [to_rgb(_COLOURS(s)) for s in strength.tolist()]
    extent = scene.source.parts[0].patch_side if moment.extent is None else moment.extent
    shown = order[: scene.shown]

    axes = page.axes(x, y, width, height)
    _draw_map(axes, scene, moment.coords[order], extent=extent, colours=colours, fill=strength)
    crops = scene.source.read(moment.indices[shown]).cpu().numpy()  # (k, C, h, w)
    step = (_SIDE - _CROP) / (_CROPS - 1)
    for i, (crop, share) in enumerate(zip(crops, moment.attention[shown].tolist(), strict=True)):
        left = x + i % _CROPS * step
        above = y + height + 0.1 + i // _CROPS * (_CROP + _CAPTION)
        axes = page.axes(left, above, _CROP, _CROP)
        axes.spines[:].set(color=colours[i], linewidth=2)
        pixels = round(_CROP * DPI)
        picture = resize(crop.transpose(1, 2, 0), (pixels, pixels))
        axes.imshow(picture, interpolation="nearest", aspect="auto")
        below = above + _CROP + 0.12
        page.write(left + 0.07, below, str(i + 1), va="center", ha="center", **chip(colours[i]))
        page.write(left + 0.2, below, f"{100 * share:.1f} %", size=8, va="center")


def _draw_map(
    axes: Axes,
    scene: _Scene,
    coords: Coords,
    *,
    extent: float,
    colours: Sequence[Colour],
    fill: Floats,
) -> None:
    """The image, every patch kept as a tint, the strongest with a box and a number."""
    view = scene.view
    height, width = view.pixels.shape[:2]
    axes.imshow(view.pixels, extent=(0, width, height, 0), interpolation="antialiased")
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    inch = width / scene.size[0]
    tints = boxes(view, coords, extent=extent, smallest=0.03 * inch)[::-1]  # weakest first
    # The colour says how strong it is; what is weak must only not hide the image.
    faces = [(*c, 0.4 + 0.3 * s) for c, s in zip(colours, fill.tolist(), strict=True)][::-1]
    squares = [Rectangle((x, y), w, h) for x, y, w, h in tints.tolist()]
    tinted = PatchCollection(squares, facecolors=faces, edgecolors="none")
    axes.add_collection(tinted, autolim=False)
    marks = boxes(view, coords[: scene.shown], extent=extent, smallest=0.09 * inch)
    spots = label_spots(marks, size=(0.16 * inch, 0.17 * inch), area=(width, height))
    for i in reversed(range(len(marks))):
        x, y, w, h = marks[i].tolist()
        axes.add_patch(Rectangle((x, y), w, h, fill=False, edgecolor=colours[i], linewidth=1.3))
    for i, (x, y) in enumerate(spots.tolist()):
        axes.text(x, y, str(i + 1), ha="center", va="center", clip_on=False, **chip(colours[i]))


def _draw_entropy(
    page: Page, y: float, *, line: float, moments: Sequence[Moment], chosen: Sequence[Moment]
) -> None:
    """A curve over all epochs, with a dot where there is a map, below the most it could be."""
    epochs = np.array([moment.epoch for moment in moments], dtype=np.float64)
    left, right = _MARGIN + 0.35, _MARGIN + line
    axes = page.axes(left, y, right - left, _CURVE)
    over_epochs(axes, "Entropy of the attention", epochs)
    values = np.array([moment.entropy for moment in moments])
    axes.plot(epochs, values, color=PALETTE[0], lw=2)
    dots = [moment.epoch for moment in chosen], [moment.entropy for moment in chosen]
    axes.plot(*dots, "o", color=PALETTE[0], ms=6, mec="white", clip_on=False, zorder=3)
    kept = max(len(moment.indices) for moment in moments)
    limit = log(kept)
    axes.axhline(limit, color=MUTED, lw=0.9, ls=(0, (4, 3)))
    # Not down to 0: of many patches, a few that stand out lower the entropy by little.
    lowest = float(np.min(values, initial=0.9 * limit, where=np.isfinite(values)))
    drop = limit - lowest
    axes.set_ylim(max(0, limit - 1.25 * drop), max(limit + 0.08 * drop, 0.1))
    text = f"at most ln {kept} = {limit:.2f}"
    page.write(right, y - 0.17, text, size=8.5, color=MUTED, ha="right", va="center")


def _draw_bar(page: Page, y: float, most: float) -> None:
    """The colours of attention, from none to the most that a patch of these maps has."""
    axes = page.axes(_MARGIN, y, 2.6, 0.13)
    axes.imshow(np.linspace(0, 1, 256)[None], cmap=_COLOURS, aspect="auto", extent=(0, 1, 0, 1))
    shares = [0.0, 0.1, 0.25, 0.5, 1.0]
    axes.set_xticks(np.sqrt(shares), [f"{100 * share * most:.3g}" for share in shares])
    axes.tick_params(length=2, labelsize=8, labelcolor=MUTED, color=RULE, pad=2)
    page.write(_MARGIN + 2.8, y + 0.065, "attention of a patch, in per cent", size=9, va="center")
