"""A CSV of all patches of an image: position, attention and class probabilities."""

from __future__ import annotations

import csv
from pathlib import Path

from ips.explain.explanation import Explanation
from ips.files import atomic_path


def write_patches(path: Path, explanation: Explanation) -> None:
    """Write a CSV with a line per patch, in the order of the source, atomically.

    Columns: ``index``; ``x``, ``y`` and ``extent`` in full-resolution pixels of the whole image;
    ``attention``, the mean over tasks, and ``attention_TASK``; ``selected``, 1 for a selected
    patch; ``probability_CLASS`` of the selected patches, if the model has a patch read-out.
    """
    source, attention = explanation.source, explanation.all_attention
    scores, classes = explanation.patch_scores, explanation.patch_classes or ()
    header = [
        *("index", "x", "y", "extent", "attention"),
        *(f"attention_{task}" for task in attention),
        "selected",
        *(f"probability_{name}" for name in classes),
    ]
    rank = {index: k for k, index in enumerate(explanation.indices.tolist())}
    columns = [explanation.mean_attention, *attention.values()]
    extent = "" if source.extent is None else source.extent
    with atomic_path(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for index, (x, y) in enumerate(source.coords.tolist()):
            k = rank.get(index)
            probabilities = [""] * len(classes)
            if k is not None and scores is not None:
                probabilities = [f"{p:.6g}" for p in scores[k].tolist()]
            values = [f"{float(column[index]):.9g}" for column in columns]
            writer.writerow([index, x, y, extent, *values, int(k is not None), *probabilities])
