"""Figure: the patches of one image with the highest attention, and where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ips.errors import PatchError
from ips.explain.colours import shortened
from ips.explain.explanation import Explanation
from ips.explain.figures.drawing import draw_grid
from ips.explain.spread import times
from ips.patches import has_pixels, read_crops

_COLUMNS = 8
_NOTE = (
    "Per cent: share of the attention to all patches of the image, mean over tasks, and how many "
    "times an even share that is. x, y: top-left "
    "corner in full-resolution pixels. Below, for selected patches of a model with a "
    "patch-level head: predicted class and its probability."
)


def draw_top_patches(path: Path, explanation: Explanation, *, top: int = 24) -> None:
    """Draw a PNG of the ``top`` patches, attention decreasing from left to right, row by row."""
    source, mean = explanation.source, explanation.mean_attention
    if not has_pixels(source):
        raise PatchError(f"{source.name}: holds features, not pixels: there are no patches to show")
    order = np.argsort(-mean, kind="stable")[:top]
    visible = order[mean[order] > 0].tolist()
    rank = {index: k for k, index in enumerate(explanation.indices.tolist())}
    scores, names = explanation.patch_scores, explanation.patch_classes
    captions, found = [], explanation.spread
    parts = source.parts
    starts = [part.patches.start for part in parts]
    for index in visible:
        place = "x {:,}  y {:,}".format(*source.coords[index].tolist())
        ratio = times(float(mean[index]) * found.patches)
        caption = [f"{100 * mean[index]:.2g} %   {ratio}", place]
        if scores is not None and names is not None and (k := rank.get(index)) is not None:
            label = int(scores[k].argmax())
            caption.append(f"{shortened(names[label], 14)} ({scores[k, label]:.2f})")
        if len(parts) > 1:
            part = parts[int(np.searchsorted(starts, index, side="right")) - 1]
            caption.append(shortened(part.title, 20))
        captions.append(caption)
    draw_grid(
        path,
        patches=read_crops(source, visible),
        captions=captions,
        side=1.1,
        columns=min(_COLUMNS, max(len(visible), 4)),
        title=f"{explanation.title}\n{found}" if found.uniform else explanation.title,
        note=_NOTE,
    )
