"""Figure: the patches of one image with the highest attention, and where they are.

Lengths on the page are in inches.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np

from ips.errors import PatchError
from ips.explain.colours import MUTED, shortened
from ips.explain.explanation import Explanation
from ips.explain.figures.page import MARGIN, Page, note_block, title_block
from ips.patches.thumbnail import as_rgb

_SIDE, _CAPTION, _GAP = 1.1, 0.55, 0.14
_COLUMNS = 8
_NOTE = (
    "Per cent: share of the attention to all patches of the image, mean over tasks. x, y: top-left "
    "corner in full-resolution pixels. Below, for selected patches of a model with a patch "
    "read-out: predicted class and its probability."
)


def draw_top_patches(path: Path, explanation: Explanation, *, top: int = 24) -> None:
    """Draw a PNG of patches with attention decreasing from left to right and top to bottom.

    Args:
        path: PNG to write.
        explanation: explanation of an image with pixels.
        top: number of patches to show.
    """
    source, mean = explanation.source, explanation.mean_attention
    if len(source.shape) != 3:
        raise PatchError(f"{source.name}: holds features, not pixels: there are no patches to show")
    order = np.argsort(-mean, kind="stable")[:top]
    shown = order[mean[order] > 0].tolist()
    columns = min(_COLUMNS, max(len(shown), 4))
    inner = columns * (_SIDE + _GAP) - _GAP
    title, note = title_block(explanation.title, inner), note_block(_NOTE, inner)
    body = 0.3 + title.height
    below = body + ceil(len(shown) / columns) * (_SIDE + _CAPTION + _GAP)
    page = Page(inner + 2 * MARGIN, below + 0.2 + note.height)
    page.write(MARGIN, 0.2, title)
    rank = {index: k for k, index in enumerate(explanation.indices.tolist())}
    scores, names = explanation.patch_scores, explanation.patch_classes
    pixels = source.read(shown).cpu().numpy()
    for i, index in enumerate(shown):
        x = MARGIN + i % columns * (_SIDE + _GAP)
        y = body + i // columns * (_SIDE + _CAPTION + _GAP)
        patch = as_rgb(pixels[i].transpose(1, 2, 0))
        page.axes(x, y, _SIDE, _SIDE).imshow(patch, interpolation="nearest", aspect="auto")
        page.write(x, y + _SIDE + 0.05, f"{100 * mean[index]:.2g} %", size=8)
        place = "x {:,}  y {:,}".format(*source.coords[index].tolist())
        page.write(x, y + _SIDE + 0.2, place, size=6.5, color=MUTED)
        if scores is not None and names is not None and (k := rank.get(index)) is not None:
            label = int(scores[k].argmax())
            text = f"{shortened(names[label], 14)} ({scores[k, label]:.2f})"
            page.write(x, y + _SIDE + 0.34, text, size=7)
    page.write(MARGIN, below, note)
    page.save(path)
