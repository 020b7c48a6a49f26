"""A prediction together with the attention of all patches.

Letters: N patches of an image, K of them selected, C classes.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage
from torch import Tensor

from ips.annotations import Outline, find_annotations, read_outlines
from ips.errors import DataError
from ips.explain.maps import Attention, AttentionMap, Floats, attention_map
from ips.explain.spread import Spread, spread
from ips.models import Prediction, Screened
from ips.patches import Part, PatchSource
from ips.statistics import Bools

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Prediction):
    """The prediction for an image with the attention of all its patches; displays in notebooks.

    ``attention`` and ``task_attention`` of a prediction are normalised over the selected patches;
    ``all_attention`` is normalised over all patches.

    Attributes:
        source: the patches of the image.
        all_attention: for each task, ``(N,)`` attention of every patch; sums to 1.
        class_probabilities: probability of each class by name, per task; empty for a number.
        title: image name and predicted classes, in one line.
        patch_classes: class names of ``patch_probabilities``; None without a patch-level head.
        outlines: annotations of the image, or of several, which figures show as contours.
        screened: which patches were scored, if a screen left out some; None if all were.
    """

    source: PatchSource
    all_attention: Attention
    class_probabilities: dict[str, dict[str, float]]
    title: str
    patch_classes: Sequence[str] | None
    outlines: Sequence[Outline] = ()
    screened: Screened | None = None

    def annotated(self, given: Path | None = None) -> tuple[Explanation, list[str]]:
        """Add the annotations of each image, see `ips.annotations.find_annotations`.

        A file beside an image that cannot be read is ignored, and a sentence says so.
        """
        outlines: list[Outline] = []
        notes = []
        for number, image in {part.image: part.picture for part in self.source.parts}.items():
            file = None
            if image is not None and image.path is not None:
                file = find_annotations(image.path, given)
            if image is None or file is None:
                continue
            try:
                found = read_outlines(file, origin=image.bounds[:2])
            except DataError as error:
                if given is not None:
                    raise
                notes.append(f"{error}: its contours are not drawn")
            else:
                outlines += [replace(outline, image=number) for outline in found]
        return (replace(self, outlines=outlines) if outlines else self), notes

    @property
    def mean_attention(self) -> Floats:
        """``(N,)`` attention of every patch, the mean over tasks."""
        mean: Floats = np.mean(list(self.all_attention.values()), axis=0)
        return mean

    @property
    def seen(self) -> Bools | None:
        """``(N,)``, False for patches that a screen left out; None if it left out none."""
        return None if self.screened is None else self.screened.scored

    @property
    def spread(self) -> Spread:
        """How evenly the attention is spread over all patches, or those that have any."""
        return spread(self.mean_attention)

    @property
    def patch_scores(self) -> Floats | None:
        """``(K, C)`` class probabilities of selected patches; None without a patch-level head."""
        if self.patch_probabilities is None:
            return None
        scores: Floats = self.patch_probabilities.detach().cpu().double().numpy()
        return scores

    @property
    def patch_labels(self) -> list[int] | None:
        """The most probable class of each selected patch; None without a patch-level head."""
        scores = self.patch_scores
        return None if scores is None else scores.argmax(axis=1).tolist()

    @property
    def part_numbers(self) -> Integers:
        """``(K,)`` number of the part of the source that each selected patch belongs to."""
        starts = [part.patches.start for part in self.source.parts]
        return np.searchsorted(starts, self.indices.cpu().numpy(), side="right") - 1

    @property
    def shares(self) -> list[float]:
        """The share of the attention that each part of the source has, mean over tasks."""
        mean = self.mean_attention
        return [float(mean[part.patches].sum()) for part in self.source.parts]

    def by_part(self) -> list[Explanation]:
        """The explanation of each image at one magnification, with its share of the attention.

        The attention of all of them together sums to 1, and percentiles are to be taken among all.
        """
        parts = self.source.parts
        if len(parts) == 1:
            return [self]
        pairs = zip(parts, self.source.by_part(), strict=True)
        return [self._of_part(part, source) for part, source in pairs]

    def _of_part(self, part: Part, source: PatchSource) -> Explanation:
        first, last = part.patches.start, part.patches.stop
        here = ((self.indices >= first) & (self.indices < last)).nonzero().flatten()
        scores = self.patch_probabilities
        title = part.title if part.name == self.name else f"{self.name}, {part.title}"
        return replace(
            self,
            name=source.name,
            indices=self.indices[here] - first,
            coords=self.coords[here.cpu().numpy()],
            extent=part.extent,
            attention=_rows(self.attention, here),
            task_attention={t: _rows(values, here) for t, values in self.task_attention.items()},
            patch_probabilities=None if scores is None else _rows(scores, here),
            patches=len(source),
            source=source,
            all_attention={t: values[part.patches] for t, values in self.all_attention.items()},
            title=title + self.title.removeprefix(self.name),
            outlines=[outline for outline in self.outlines if outline.image == part.image],
            screened=None if self.screened is None else self.screened.part(part.patches),
        )

    def map(self, task: str | None = None) -> AttentionMap:
        """The attention of a task as a raster over the image; the mean over tasks by default.

        A bag of several images has a map for each: see `by_part`.
        """
        values = self.mean_attention if task is None else self.all_attention[task]
        return attention_map(self.source, values, seen=self.seen)

    def overlay(self) -> PILImage.Image:
        """The image overlaid with the attention of all patches: mean over tasks, and each task."""
        return PILImage.open(io.BytesIO(self._png()))

    def to_geojson(self, *, all_patches: bool = False, crop: bool = True) -> dict[str, Any]:
        """The selected patches, or all, as a GeoJSON FeatureCollection: see `patch_features`.

        A bag of several images has a collection for each: see `by_part`.
        """
        from ips.explain.geojson import patch_features

        features = patch_features(self, all_patches=all_patches, crop=crop)
        return {"type": "FeatureCollection", "features": list(features)}

    def _png(self) -> bytes:
        from ips.explain.figures.overlay import overlay_page

        png = overlay_page(self).png()
        self.source.close()  # otherwise a decoded image would stay in memory
        return png

    def _repr_html_(self) -> str:
        rows = ""
        for task, classes in self.class_probabilities.items():
            if not classes:  # a number
                value = float(self.probabilities[task].flatten()[0])
                rows += f"<tr><th>{escape(task)}</th><td>{value:.4g}</td></tr>"
                continue
            best = sorted(classes, key=classes.__getitem__, reverse=True)[:3]
            cells = "".join(f"<td>{escape(name)}: {classes[name]:.3f}</td>" for name in best)
            rows += f"<tr><th>{escape(task)}</th>{cells}</tr>"
        png = base64.b64encode(self._png()).decode()
        return f'<table>{rows}</table><img src="data:image/png;base64,{png}" width="800">'

    def __repr__(self) -> str:
        return f"<Explanation of {self.title}, from {self.origin}>"


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    return values[rows.to(values.device)]
