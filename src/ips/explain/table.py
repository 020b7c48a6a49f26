"""Every patch of an image in a CSV: where it is, how much it was attended to, what it shows."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from ips.explain.maps import Attention, mean_attention, patch_scores
from ips.models import Prediction
from ips.patches import PatchSource


def write_patches(
    path: Path,
    prediction: Prediction,
    source: PatchSource,
    attention: Attention,
    *,
    names: Sequence[str] | None = None,
) -> None:
    """A line a patch, in the image's order, the attention as it is: unscaled.

    Columns: ``index``; ``x``, ``y`` and ``extent`` in full-resolution pixels of the whole image;
    ``attention``, the mean over tasks, and ``attention_TASK``; ``selected``, 1 for those that the
    answer rests on; for these ``probability_CLASS`` of the read-out head, if there is one.

    Args:
        path: of the CSV, which appears whole or not at all.
        prediction: for the image.
        source: its patches.
        attention: ``(N,)`` of each of them, per task.
        names: of the classes of the read-out head, their numbers by default.
    """
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(_lines(prediction, source, attention, names))
    partial.replace(path)


def _lines(
    prediction: Prediction,
    source: PatchSource,
    attention: Attention,
    names: Sequence[str] | None,
) -> Iterator[list[str | int]]:
    scores = patch_scores(prediction)
    count = 0 if scores is None else scores.shape[1]
    classes = [str(c) if names is None else names[c] for c in range(count)]
    yield [
        *("index", "x", "y", "extent", "attention"),
        *(f"attention_{task}" for task in attention),
        "selected",
        *(f"probability_{name}" for name in classes),
    ]
    rank = {index: k for k, index in enumerate(prediction.indices.tolist())}
    coords, columns = source.coords, [mean_attention(attention), *attention.values()]
    extent = "" if source.extent is None else source.extent
    for index in range(prediction.patches):
        k = rank.get(index)
        x, y = coords[index].tolist()
        probabilities = [""] * count
        if k is not None and scores is not None:
            probabilities = [f"{p:.6g}" for p in scores[k].tolist()]
        values = [f"{float(column[index]):.9g}" for column in columns]
        yield [index, x, y, extent, *values, int(k is not None), *probabilities]
