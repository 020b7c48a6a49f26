"""Compares the attention to test images with the objects on them, batch by batch.

Letters: B images of a batch, T tasks, H heads, K selected patches, N patches of an image.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ips.data.regions import Region, patches_on
from ips.localisation import ImageHits, Localisation, image_hits, localise
from ips.models import Net, Output, ScoreTable
from ips.models.outputs import attention_from_logits
from ips.patches import Coords, Part, PatchSource
from ips.predictions import TestPredictions
from ips.selection import Selection
from ips.statistics import Floats, Integers
from ips.training.data import DataSet
from ips.training.objects import objects_of


class Localiser:
    """Collects the hits of every image of a data set, which are added in their order.

    Args:
        net: the model.
        data: the test images; some of them have objects.
    """

    def __init__(self, net: Net, data: DataSet) -> None:
        self._net, self._data = net, data
        self._hits: dict[str, list[ImageHits | None]] = {task: [] for task in net.tasks}

    @classmethod
    def for_data(cls, net: Net, data: DataSet) -> Localiser | None:
        """A localiser, or None if the data set knows of no objects."""
        images = range(len(data))
        known = any(objects_of(data, i, task) is not None for i in images for task in net.tasks)
        return cls(net, data) if known else None

    def tables(self, sources: Sequence[PatchSource]) -> list[ScoreTable]:
        """Empty tables for the scores of a batch, which `compare` needs."""
        return [self._net.empty_table(source) for source in sources]

    def compare(
        self,
        numbers: Sequence[int],
        output: Output,
        selection: Selection,
        tables: Sequence[ScoreTable],
    ) -> list[dict[str, ImageHits | None]]:
        """The hits of each image of a batch, by task.

        Args:
            numbers: numbers of the images in the data set.
            output: the model's output.
            selection: the patches that it selected.
            tables: the filled tables of scores.
        """
        assert output.attention is not None
        attention = output.attention.detach().cpu().double().mean(dim=2).numpy()  # (B, T, K)
        hits = []
        for b, (number, table) in enumerate(zip(numbers, tables, strict=True)):
            mask = selection.mask[b].cpu().numpy()
            indices = selection.indices[b].cpu().numpy()[mask]
            weights = zip(self._net.tasks, attention[b][:, mask], strict=True)
            hits.append(
                {task: self._compare(number, task, indices, w, table) for task, w in weights}
            )
        return hits

    def add(self, hits: Sequence[dict[str, ImageHits | None]]) -> None:
        """Add the hits of the next images, in the order of the data set."""
        for image in hits:
            for task, found in image.items():
                self._hits[task].append(found)

    def results(self, predictions: TestPredictions) -> dict[str, Localisation]:
        """The scores of the tasks of which some image has objects."""
        found = {task.name: localise(self._hits[task.name], task) for task in predictions.tasks}
        return {name: result for name, result in found.items() if result is not None}

    def _compare(
        self, number: int, task: str, indices: Integers, weights: Floats, table: ScoreTable
    ) -> ImageHits | None:
        """The hits of an image with the selected patches ``indices`` ``(K,)``."""
        regions = objects_of(self._data, number, task)
        if regions is None:
            return None
        all_attention = np.zeros(len(table.logits))
        all_attention[indices] = weights
        if regions and self._net.scores_all_patches:
            all_attention = attention_from_logits(table.selectable()[0], self._net.tasks)[task]
        return image_hits(
            self._patches_on(regions, number),
            indices=indices,
            attention=weights,
            all_attention=all_attention,
        )

    def _patches_on(self, regions: Sequence[Region], number: int) -> list[Integers]:
        """Indices of the patches that are on each object of an image."""
        if not regions:
            return []
        # Opened anew, since a batch of features in memory has lost its coordinates.
        with self._data[number][0] as opened:
            source = self._net.own_patches(opened)
            coords, parts = source.coords, source.parts
            return [_patches_on(region, coords, parts) for region in regions]


def _patches_on(region: Region, coords: Coords, parts: Sequence[Part]) -> Integers:
    """Indices of the patches on a region, at all magnifications of its image."""
    found = [np.empty(0, dtype=np.int64)]
    for part in parts:
        if part.image == region.image:
            here = patches_on(region, coords[part.patches], extent=part.patch_side)
            found.append(here + part.patches.start)
    return np.concatenate(found)
