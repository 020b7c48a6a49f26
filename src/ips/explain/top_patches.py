"""The patches of one image with the most attention, each with how much it got and where it is.

Letters: N patches of an image. Lengths on the page are in inches.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path

import numpy as np

from ips.errors import PatchError
from ips.explain.maps import Attention, mean_attention, patch_scores
from ips.explain.page import MUTED, Page, shortened, wrapped
from ips.models import Prediction
from ips.patches import PatchSource
from ips.patches.thumbnail import as_rgb

_SIDE, _CAPTION, _GAP, _MARGIN = 1.1, 0.55, 0.14, 0.3
_COLUMNS = 8


def draw_top_patches(
    path: Path,
    prediction: Prediction,
    source: PatchSource,
    attention: Attention,
    *,
    title: str,
    names: Sequence[str] | None = None,
    top: int = 24,
) -> None:
    """One PNG, attention decreasing from left to right, then from top to bottom.

    Args:
        path: of the PNG.
        prediction: for the image.
        source: its patches, which must have pixels.
        attention: ``(N,)`` of each of them, per task.
        title: what to write above.
        names: of the classes of the read-out head, their numbers by default.
        top: how many patches to show.
    """
    if len(source.shape) != 3:
        raise PatchError(f"{source.name}: holds features, not pixels, so there is no patch to show")
    mean = mean_attention(attention)
    order = np.argsort(-mean, kind="stable")[:top]
    shown = order[mean[order] > 0].tolist()
    across = min(_COLUMNS, max(len(shown), 4))
    width = across * (_SIDE + _GAP) - _GAP
    header = wrapped(title, int(width * 12.5))
    note = wrapped(_NOTE, int(width * 16))
    body = 0.3 + 0.2 * (header.count("\n") + 1)
    below = body + ceil(len(shown) / across) * (_SIDE + _CAPTION + _GAP)
    page = Page(width + 2 * _MARGIN, below + 0.2 + 0.17 * (note.count("\n") + 1))
    page.write(_MARGIN, 0.2, header, size=10, weight="bold", linespacing=1.3)
    kept = {index: k for k, index in enumerate(prediction.indices.tolist())}
    scores, pixels = patch_scores(prediction), source.read(shown).cpu().numpy()
    for i, index in enumerate(shown):
        x = _MARGIN + i % across * (_SIDE + _GAP)
        y = body + i // across * (_SIDE + _CAPTION + _GAP)
        patch = as_rgb(pixels[i].transpose(1, 2, 0))
        page.axes(x, y, _SIDE, _SIDE).imshow(patch, interpolation="nearest", aspect="auto")
        page.write(x, y + _SIDE + 0.05, f"{100 * mean[index]:.2g} %", size=8)
        place = "x {:,}  y {:,}".format(*source.coords[index].tolist())
        page.write(x, y + _SIDE + 0.2, place, size=6.5, color=MUTED)
        if scores is not None and (k := kept.get(index)) is not None:
            label = int(scores[k].argmax())
            name = str(label) if names is None else shortened(names[label], 14)
            page.write(x, y + _SIDE + 0.34, f"{name} ({scores[k, label]:.2f})", size=7)
    page.write(_MARGIN, below, note, size=8, color=MUTED, linespacing=1.35)
    page.save(path)


_NOTE = (
    "Per cent: part of the attention to all patches of the image, mean over tasks. x, y: top-left "
    "corner in full-resolution pixels. Below, for patches selected, the class that the patch-level "
    "head reads, if there is one, and its score."
)
