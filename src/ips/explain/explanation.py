"""A prediction that can be looked at.

Letters: N patches of an image.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from PIL import Image as PILImage

from ips.explain.geojson import patch_features
from ips.explain.maps import Attention, AttentionMap, attention_map, mean_attention
from ips.explain.overlay import overlay_png
from ips.models import Prediction
from ips.patches import PatchSource


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Prediction):
    """The answer for an image, with the attention of all its patches; a notebook shows it.

    ``attention`` and ``task_attention`` of a prediction are those among the patches kept;
    ``everywhere`` is that among all patches, most of which the answer does not rest on.

    Attributes:
        source: the patches of the image.
        everywhere: ``(N,)`` per task, attention of every patch; sums to 1.
        named: probability of each class by its name, per task.
        title: what is predicted, in one line.
        names: of the classes of the read-out head, None without one.
    """

    source: PatchSource
    everywhere: Attention
    named: dict[str, dict[str, float]]
    title: str
    names: Sequence[str] | None

    def map(self, task: str | None = None) -> AttentionMap:
        """The attention of a task as a raster over the image, the mean over tasks by default."""
        values = mean_attention(self.everywhere) if task is None else self.everywhere[task]
        return attention_map(self.source, values)

    def overlay(self) -> PILImage.Image:
        """The image with the attention of all patches over it, per task and mean.

        >>> load("runs/demo").predict("image.png").overlay().save("overlay.png")  # doctest: +SKIP
        """
        return PILImage.open(io.BytesIO(self._png()))

    def to_geojson(self, *, all_patches: bool = False, crop: bool = True) -> dict[str, Any]:
        """The patches selected, or all, as a FeatureCollection: see `patch_features`."""
        features = patch_features(
            self,
            self.source,
            self.everywhere,
            names=self.names,
            all_patches=all_patches,
            crop=crop,
        )
        return {"type": "FeatureCollection", "features": list(features)}

    def _png(self) -> bytes:
        png = overlay_png(self.source, self.everywhere, title=self.title)
        self.source.close()  # a PNG that was opened for it would stay decoded
        return png

    def _repr_html_(self) -> str:
        rows = ""
        for task, classes in self.named.items():
            best = sorted(classes, key=classes.__getitem__, reverse=True)[:3]
            cells = "".join(f"<td>{escape(name)}: {classes[name]:.3f}</td>" for name in best)
            rows += f"<tr><th>{escape(task)}</th>{cells}</tr>"
        picture = base64.b64encode(self._png()).decode()
        return f'<table>{rows}</table><img src="data:image/png;base64,{picture}" width="800">'

    def __repr__(self) -> str:
        return f"<Explanation of {self.title}>"
