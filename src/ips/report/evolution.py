"""Figure: how the attention over one image changes during training.

Letters: K selected patches of the image. Lengths on the page are in inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from pathlib import Path

import numpy as np

from ips.errors import PatchError, RunError
from ips.explain.colours import MUTED, PALETTE
from ips.explain.figures.drawing import (
    attention_colours,
    draw_crop,
    draw_number,
    draw_patches,
    draw_scale,
    fit,
)
from ips.explain.figures.page import DPI, MARGIN, Page, note_block, style_epoch_axes, title_block
from ips.explain.maps import relative_attention
from ips.patches import Part, PatchSource, Thumbnail
from ips.report.snapshots import Snapshot
from ips.statistics import Bools, Integers

_MAPS, _COLUMNS = 6, 3
_SIDE = 2.7  # side of the square that a map fits into
_CROPS = 4  # crops in a row below a map
_CROP, _CAPTION = 0.58, 0.3
_BETWEEN = 0.4
_CURVE = 1.35


def draw_evolution(
    path: Path, *, source: PatchSource, snapshots: Sequence[Snapshot], title: str, top: int = 4
) -> None:
    """Draw a PNG of the attention at up to six epochs, and its entropy at all epochs.

    All maps share one colour scale, so that evenly spread attention looks dark, and gets brighter
    where it concentrates.

    Args:
        path: PNG to write.
        source: patches of the image, which must have pixels.
        snapshots: snapshots of ascending epochs; six of them, evenly spaced, are drawn as maps.
        title: title of the figure.
        top: number of patches of each map to number and to show below it.
    """
    if len(source.shape) != 3:
        raise PatchError(
            f"{source.name}: holds features, not pixels to draw attention over: use the patches of "
            "the image itself"
        )
    if not snapshots:
        raise RunError(f"{path}: there is no epoch to draw yet, train for at least one")
    drawn = evenly_spaced(snapshots, _MAPS)
    highest = max(float(np.nan_to_num(s.attention).max()) for s in drawn)
    top = min(top, max(len(s.indices) for s in drawn))
    part = _most_attended(source, snapshots[-1])
    view = part.thumbnail(round(_SIDE * DPI))
    if len(source.parts) > 1:
        title += f"\n{part.title}, where attention is highest in the end"

    columns = len(drawn) if len(drawn) <= _COLUMNS else ceil(len(drawn) / 2)
    inner = max(columns, 2) * (_SIDE + _BETWEEN) - _BETWEEN  # the curve needs two columns
    last = snapshots[-1]
    if last.spread.uniform:
        title += f"\nAttention to the selected patches is nearly uniform in epoch {last.epoch}"
    header = title_block(title, inner)
    body = 0.35 + header.height
    pitch = 0.26 + fit(view, _SIDE, _SIDE)[1] + 0.1 + ceil(top / _CROPS) * (_CROP + _CAPTION) + 0.2
    curve = body + ceil(len(drawn) / columns) * pitch + 0.3
    scale = curve + _CURVE + 0.65
    note = note_block(
        f"Numbers: the {top} patches with the highest attention in that epoch, and their share of "
        "it. Entropy: highest (dashed) if all selected patches have the same attention; the dots "
        "are the epochs above.",
        inner,
    )
    page = Page(inner + 2 * MARGIN, scale + 0.6 + note.height)
    page.write(MARGIN, 0.2, header)
    for i, snapshot in enumerate(drawn):
        x, y = MARGIN + i % columns * (_SIDE + _BETWEEN), body + i // columns * pitch
        page.write(x, y, f"epoch {snapshot.epoch}", size=9.5, weight="bold")
        text = f"entropy {snapshot.entropy:.2f}"
        page.write(x + fit(view, _SIDE, _SIDE)[0], y, text, size=9.5, color=MUTED, ha="right")
        _draw_snapshot(page, (x, y + 0.26), snapshot, source, part, view, highest=highest, top=top)
    _draw_entropy(page, curve, width=inner, snapshots=snapshots, drawn=drawn)
    text = "attention of a patch, in per cent"
    draw_scale(page, scale, tick=lambda share: f"{100 * share * highest:.3g}", text=text)
    page.write(MARGIN, scale + 0.45, note)
    page.save(path)


def _most_attended(source: PatchSource, snapshot: Snapshot) -> Part:
    """The part whose patches have the most attention."""

    def attention(part: Part) -> float:
        return float(np.nansum(snapshot.attention[_in_part(snapshot.indices, part)]))

    return max(source.parts, key=attention)


def _in_part(indices: Integers, part: Part) -> Bools:
    inside: Bools = (indices >= part.patches.start) & (indices < part.patches.stop)
    return inside


def evenly_spaced(snapshots: Sequence[Snapshot], count: int) -> list[Snapshot]:
    """``count`` evenly spaced snapshots with the first and the last; all if there are fewer."""
    steps = np.linspace(0, len(snapshots) - 1, min(count, len(snapshots)))
    return [snapshots[i] for i in np.rint(steps).astype(int).tolist()]


def _draw_snapshot(
    page: Page,
    corner: tuple[float, float],
    snapshot: Snapshot,
    source: PatchSource,
    part: Part,
    view: Thumbnail,
    *,
    highest: float,
    top: int,
) -> None:
    """A map of one part of the source, and the crops of its top patches below."""
    x, y = corner
    width, height = fit(view, _SIDE, _SIDE)
    order = np.argsort(-snapshot.attention, kind="stable")
    order = order[_in_part(snapshot.indices[order], part)]
    strength = relative_attention(np.nan_to_num(snapshot.attention[order]), highest)
    colours = attention_colours(strength)
    draw_patches(
        page.axes(x, y, width, height),
        view,
        width=width,
        coords=snapshot.coords[order],
        side=snapshot.extent or part.patch_side,
        colours=colours,
        opacities=(0.4 + 0.3 * strength).tolist(),  # patches of low attention stay visible
        numbered=top,
    )
    crops = source.read(snapshot.indices[order[:top]]).cpu().numpy()  # (k, C, h, w)
    for i, (crop, share) in enumerate(zip(crops, snapshot.attention[order[:top]], strict=True)):
        left = x + i % _CROPS * (_SIDE - _CROP) / (_CROPS - 1)
        above = y + height + 0.1 + i // _CROPS * (_CROP + _CAPTION)
        draw_crop(page, left, above, side=_CROP, patch=crop, colour=colours[i], line=2)
        below = above + _CROP + 0.12
        draw_number(page, left, below, number=i + 1, colour=colours[i], attention=share)


def _draw_entropy(
    page: Page, y: float, *, width: float, snapshots: Sequence[Snapshot], drawn: Sequence[Snapshot]
) -> None:
    """The entropy over all epochs below its maximum, with a dot for each map."""
    epochs = np.array([s.epoch for s in snapshots], dtype=np.float64)
    left, right = MARGIN + 0.35, MARGIN + width
    axes = page.axes(left, y, right - left, _CURVE)
    style_epoch_axes(axes, "Entropy of the attention", epochs)
    values = np.array([s.entropy for s in snapshots])
    axes.plot(epochs, values, color=PALETTE[0], lw=2)
    dots = [s.epoch for s in drawn], [s.entropy for s in drawn]
    axes.plot(*dots, "o", color=PALETTE[0], ms=6, mec="white", clip_on=False, zorder=3)
    most = max(len(s.indices) for s in snapshots)
    limit = log(most)
    axes.axhline(limit, color=MUTED, lw=0.9, ls=(0, (4, 3)))
    # Not down to 0: with many patches, a few that stand out lower the entropy only a little.
    lowest = float(np.min(values, initial=0.9 * limit, where=np.isfinite(values)))
    drop = limit - lowest
    axes.set_ylim(max(0, limit - 1.25 * drop), max(limit + 0.08 * drop, 0.1))
    text = f"at most ln {most} = {limit:.2f}"
    page.write(right, y - 0.17, text, size=8.5, color=MUTED, ha="right", va="center")
