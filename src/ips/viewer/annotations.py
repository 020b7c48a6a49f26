"""What people drew on an image: GeoJSON (QuPath) and the XML of ASAP, as plain outlines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ips.errors import DataError
from ips.images import Image

Point = tuple[float, float]

_SUFFIXES = (".geojson", ".xml", ".json")
_COLOUR = "#ffa90e"
_LARGEST = 64 * 2**20  # bytes of a file
_MOST = 500_000  # points that a browser still draws
_MALFORMED = (
    *(AttributeError, IndexError, KeyError, OverflowError),
    *(RecursionError, TypeError, ValueError),
)


@dataclass(frozen=True)
class Outline:
    """One shape in full-resolution pixels.

    Attributes:
        kind: ``polygon`` (its first line is the outside, others are holes), ``line`` or ``point``.
        lines: of points x, y.
        name: of what it shows, or an empty string.
        colour: as ``#rrggbb``.
    """

    kind: str
    lines: list[list[Point]]
    name: str
    colour: str


def find_annotations(image: Path, given: Path | None) -> Path | None:
    """The file of an image's annotations: ``given``, or of its name in that folder or beside it."""
    if given is not None and given.is_file():
        return given
    for suffix in _SUFFIXES if given is not None else _SUFFIXES[:2]:  # .json may be anything
        if (path := (given or image.parent) / f"{image.stem}{suffix}").is_file():
            return path
    return None


def read_annotations(path: Path, image: Image) -> list[Outline]:
    """The shapes in a file, where they are on ``image``.

    QuPath shows a slide without the margin that was not scanned, and counts from there; ASAP
    counts from the corner of the file. Tiles are left out: nobody drew them, `ips explain` did.
    """
    try:
        if path.stat().st_size > _LARGEST:
            raise _wrong(path, f"it is larger than {_LARGEST // 2**20} MB")
        text = path.read_bytes()
        if path.suffix.lower() == ".xml":
            outlines = list(_of_xml(text))
        else:
            left, top, *_ = image.bounds
            outlines = list(_of_geojson(json.loads(text), left, top))
    except ElementTree.ParseError as error:
        raise _wrong(path, f"it is not XML ({error})") from error
    except _MALFORMED as error:
        raise _wrong(path, f"it is neither GeoJSON nor XML of ASAP ({error!r:.80})") from error
    except OSError as error:
        raise _wrong(path, str(error.strerror).lower()) from error
    if sum(len(line) for outline in outlines for line in outline.lines) > _MOST:
        raise _wrong(path, f"it has more than {_MOST:,} points")
    return outlines


def _wrong(path: Path, why: str) -> DataError:
    return DataError(f"{path.name}: these annotations are not shown, {why}: export them again")


def _of_geojson(value: Any, left: int, top: int) -> Iterator[Outline]:
    features = value if isinstance(value, list) else value.get("features", [value])
    for feature in features:
        geometry = feature.get("geometry", feature)
        about = feature.get("properties") or {}
        if about.get("objectType") == "tile":
            continue
        kind = about.get("classification") or {}
        name = str(kind.get("name") or about.get("name") or "")
        colour = _rgb(kind.get("color", kind.get("colorRGB", about.get("color"))))
        for shape, lines in _shapes(geometry):
            moved = [[(float(x) + left, float(y) + top) for x, y, *_ in line] for line in lines]
            yield _checked(Outline(shape, moved, name, colour))


def _shapes(geometry: Any) -> Iterator[tuple[str, list[Any]]]:
    """``kind`` and ``lines`` of an outline, from any geometry."""
    kind = geometry["type"]
    if kind == "GeometryCollection":
        for part in geometry["geometries"]:
            yield from _shapes(part)
        return
    coordinates = geometry["coordinates"]
    many = coordinates if kind.startswith("Multi") else [coordinates]
    match kind.removeprefix("Multi"):
        case "Polygon":
            yield from (("polygon", rings) for rings in many)
        case "LineString":
            yield from (("line", [line]) for line in many)
        case "Point":
            yield from (("point", [[point]]) for point in many)
        case _:
            raise ValueError(f"unknown geometry {kind}")


class _Tree(ElementTree.TreeBuilder):
    """Without a document type, which could define entities of any size."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("it has a document type")


def _of_xml(text: bytes) -> Iterator[Outline]:
    root = ElementTree.fromstring(text, parser=ElementTree.XMLParser(target=_Tree()))
    if root.tag != "ASAP_Annotations":
        raise ValueError(f"the root is {root.tag}")
    groups = {g.get("Name"): g.get("Color") for g in root.iter("Group")}
    for annotation in root.iter("Annotation"):
        group = annotation.get("PartOfGroup")
        points = sorted(
            (float(c.attrib["Order"]), float(c.attrib["X"]), float(c.attrib["Y"]))
            for c in annotation.iter("Coordinate")
        )
        if not points:
            continue
        line = [(x, y) for _, x, y in points]
        kind = "point" if annotation.get("Type") in ("Dot", "PointSet") else "polygon"
        name = annotation.get("Name", "") if group in (None, "None") else group
        colour = _rgb(annotation.get("Color") or groups.get(group))
        for part in [line] if kind == "polygon" else [[point] for point in line]:
            yield _checked(Outline(kind, [part], name, colour))


def _checked(outline: Outline) -> Outline:
    if not all(isfinite(v) for line in outline.lines for point in line for v in point):
        raise ValueError("a coordinate is not a number")
    return outline


def _rgb(value: Any) -> str:
    """A colour as ``#rrggbb``, whatever a tool wrote; our own for what is none."""
    if isinstance(value, str) and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        return value.lower()
    if isinstance(value, int):  # QuPath before it wrote lists: 0xAARRGGBB, signed
        return f"#{value & 0xFFFFFF:06x}"
    if isinstance(value, list) and len(value) == 3 and all(isinstance(v, int) for v in value):
        return "#" + "".join(f"{min(max(v, 0), 255):02x}" for v in value)
    return _COLOUR
