"""Patches as GeoJSON (RFC 7946) for QuPath: tiles with measurements and a class.

Letters: K selected patches of an image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from ips.errors import PatchError
from ips.explain.colours import PALETTE, Colour, class_colours, rgb
from ips.explain.explanation import Explanation
from ips.explain.map_coordinates import MapCoordinates
from ips.explain.maps import image_area


def patch_features(
    explanation: Explanation,
    *,
    all_patches: bool = False,
    crop: bool = True,
    on_map: MapCoordinates | None = None,
) -> Iterator[dict[str, Any]]:
    """A GeoJSON feature for each selected patch, by descending attention.

    Args:
        explanation: explanation of the image.
        all_patches: give all patches in the order of the source; only selected ones have a class.
        crop: count pixels from the corner of the scanned area, as QuPath does, where the file has
            one; otherwise from the corner of the whole image.
        on_map: give map coordinates instead of pixels.
    """
    source, attention = explanation.source, explanation.all_attention
    if (side := source.extent) is None:
        raise PatchError(
            f"{source.name}: the patch size is unknown, so patches cannot be outlined in GeoJSON: "
            "use a feature file that states its patch size, or the image itself"
        )
    origin = image_area(source, crop=crop and on_map is None)[:2]
    indices = explanation.indices.tolist()
    rank = {index: k for k, index in enumerate(indices)}
    mean, scores = explanation.mean_attention, explanation.patch_scores
    names, classes = explanation.patch_classes or (), _classifications(explanation)
    for index in range(explanation.patches) if all_patches else indices:
        k = rank.get(index)
        x, y = (source.coords[index] - origin).tolist()
        measurements = {"patch": index, "attention": float(mean[index])}
        if len(attention) > 1:
            for task, values in attention.items():
                measurements[f"attention: {task}"] = float(values[index])
        properties: dict[str, Any] = {"objectType": "tile", "name": f"patch {index}"}
        if k is not None:
            properties["classification"] = classes[k]
            if scores is not None:
                for name, score in zip(names, scores[k].tolist(), strict=True):
                    measurements[f"probability: {name}"] = score
        # Closed, and counterclockwise where y goes up: the right-hand rule of RFC 7946.
        ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
        if on_map is not None:
            ring = on_map.ring(ring)
        yield {
            "type": "Feature",
            "id": str(uuid5(NAMESPACE_URL, f"{source.name}#{index}")),  # the same in every export
            "geometry": {"type": "Polygon", "coordinates": [ring]},
            "properties": properties | {"isLocked": True, "measurements": measurements},
        }


def _classifications(explanation: Explanation) -> list[dict[str, Any]]:
    """Name and colour of the class of each selected patch, as in the figures."""
    labels, names = explanation.patch_labels, explanation.patch_classes
    if labels is None or names is None:
        return [_classification("selected", rgb(PALETTE[0]))] * len(explanation.indices)
    palette = class_colours([(labels, explanation.attention.tolist())])
    other = rgb(PALETTE[-1])
    return [_classification(names[i], palette.get(i, other)) for i in labels]


def _classification(name: str, colour: Colour) -> dict[str, Any]:
    return {"name": name, "color": [round(255 * part) for part in colour]}
