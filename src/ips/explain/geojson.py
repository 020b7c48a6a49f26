"""Patches as GeoJSON (RFC 7946) that QuPath opens: tiles with measurements and a class.

Letters: N patches of an image, K of them kept, C classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from matplotlib.colors import to_rgb

from ips.errors import PatchError
from ips.explain.attention import class_colours
from ips.explain.maps import Attention, Floats, image_area, mean_attention, patch_scores
from ips.explain.page import PALETTE
from ips.models import Prediction
from ips.patches import PatchSource

Feature = dict[str, Any]


def patch_features(
    prediction: Prediction,
    source: PatchSource,
    attention: Attention,
    *,
    names: Sequence[str] | None = None,
    all_patches: bool = False,
    crop: bool = True,
) -> Iterator[Feature]:
    """A GeoJSON feature for each patch kept, the most important first, or for all in their order.

    Args:
        prediction: for the image.
        source: its patches.
        attention: ``(N,)`` of each of them, per task.
        names: of the classes of the read-out head, their numbers by default.
        all_patches: those not kept too; they have attention, but no class.
        crop: count pixels from the corner of the part that was scanned, as QuPath does, where the
            file says which that is; else from that of the whole image.
    """
    if source.extent is None:
        raise PatchError(
            f"{source.name}: does not say how large its patches are, so they cannot be outlined "
            "in GeoJSON: give a feature file that states its patch size, or the image itself"
        )
    left, top, _, _ = image_area(source, crop=crop)
    return _features(prediction, source, attention, (left, top), names, all_patches=all_patches)


def _features(
    prediction: Prediction,
    source: PatchSource,
    attention: Attention,
    origin: tuple[int, int],
    names: Sequence[str] | None,
    *,
    all_patches: bool,
) -> Iterator[Feature]:
    assert source.extent is not None
    indices = prediction.indices.tolist()
    rank = {index: k for k, index in enumerate(indices)}
    coords, mean = source.coords, mean_attention(attention)
    scores = patch_scores(prediction)
    classes = _classes(prediction, scores, names)
    for index in range(prediction.patches) if all_patches else indices:
        k = rank.get(index)
        x, y = (coords[index] - origin).tolist()
        measurements = {"patch": index, "attention": float(mean[index])}
        if len(attention) > 1:
            for task, values in attention.items():
                measurements[f"attention: {task}"] = float(values[index])
        properties: dict[str, Any] = {"objectType": "tile", "name": f"patch {index}"}
        if k is not None:
            properties["classification"] = classes[k]
            for number, score in enumerate([] if scores is None else scores[k].tolist()):
                measurements[f"probability: {_name(names, number)}"] = score
        yield {
            "type": "Feature",
            "id": str(uuid5(NAMESPACE_URL, f"{source.name}#{index}")),  # the same at every call
            "geometry": {"type": "Polygon", "coordinates": [_ring(x, y, source.extent)]},
            "properties": properties | {"isLocked": True, "measurements": measurements},
        }


def _ring(x: int, y: int, side: int) -> list[list[int]]:
    """Closed, and of positive area in x and y: the right-hand rule of RFC 7946."""
    return [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]


def _classes(
    prediction: Prediction, scores: Floats | None, names: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Name and colour of each patch kept, as in the pictures; without a read-out they share one."""
    if scores is None:
        return [{"name": "selected", "color": _rgb(to_rgb(PALETTE[0]))}] * len(prediction.indices)
    labels: list[int] = scores.argmax(axis=1).tolist()
    palette = class_colours([(labels, prediction.attention.tolist())])
    other = to_rgb(PALETTE[-1])
    return [
        {"name": _name(names, label), "color": _rgb(palette.get(label, other))} for label in labels
    ]


def _rgb(colour: tuple[float, float, float]) -> list[int]:
    return [round(255 * part) for part in colour]


def _name(names: Sequence[str] | None, number: int) -> str:
    return str(number) if names is None else names[number]
