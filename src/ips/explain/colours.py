"""Colours of figures and exports. They work without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence

Colour = tuple[float, float, float]

INK, MUTED, RULE = "#1f2933", "#6b7280", "#d5d9de"
#: Ten colours that stay at least 20 CIELAB units apart with red or green blindness, none of them
#: too dark for a black image or too light for a white one.
PALETTE = (
    "#0072b2",
    "#ffa90e",
    "#bd1f01",
    "#33bbee",
    "#7b68ee",
    "#ee7733",
    "#b2df8a",
    "#ffaabb",
    "#a96b59",
    "#717581",
)
#: Key in `class_colours` of all classes that have no colour of their own.
OTHER = -1


def rgb(colour: str) -> Colour:
    """A colour like ``#0072b2`` as red, green and blue from 0 to 1."""
    r, g, b = bytes.fromhex(colour.removeprefix("#"))
    return r / 255, g / 255, b / 255


def class_colours(patches: Sequence[tuple[list[int], list[float]]]) -> dict[int, Colour]:
    """A colour for each class among patches.

    A class has the same colour in every picture as long as its number is below ten. With more
    classes, those of the highest total weight get a colour each, and the rest share the last one.

    Args:
        patches: class numbers and weights of the patches of each image.
    """
    total: dict[int, float] = {}
    for labels, weights in patches:
        for label, weight in zip(labels, weights, strict=True):
            total[label] = total.get(label, 0.0) + weight
    if max(total, default=0) < len(PALETTE):
        return {label: rgb(PALETTE[label]) for label in sorted(total)}
    ranked = sorted(total, key=total.__getitem__, reverse=True)[: len(PALETTE) - 1]
    chosen = sorted(ranked) + [OTHER] * (len(total) > len(ranked))
    return {label: rgb(PALETTE[i]) for i, label in enumerate(chosen)}


def class_name(names: Sequence[str] | None, label: int) -> str:
    """Name of a class of patches, or of all classes without a colour of their own."""
    if label == OTHER:
        return "other"
    return str(label) if names is None else names[label]


def ink_on(colour: Colour) -> str:
    """The text colour that can be read on a background of ``colour``: dark or white."""
    r, g, b = colour
    return INK if 0.299 * r + 0.587 * g + 0.114 * b > 0.55 else "white"


def shortened(text: str, length: int) -> str:
    """``text``, cut to at most ``length`` characters."""
    return text if len(text) <= length else text[: length - 1] + "…"
