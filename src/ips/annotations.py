"""Read and write outlines on images: GeoJSON as QuPath writes it, and the XML of ASAP.

    <Annotation Name=".." PartOfGroup="Tumor" Type="Polygon">
      <Coordinates><Coordinate Order="0" X="12.5" Y="40"/> ...

Coordinates are full-resolution pixels.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ips.errors import DataError, because, shown
from ips.files import atomic_write

Point = tuple[float, float]

_SUFFIXES = (".geojson", ".xml", ".json")
_MAX_BYTES = 64 * 2**20
_MALFORMED = (
    *(AttributeError, IndexError, KeyError, OverflowError),
    *(RecursionError, TypeError, ValueError, ElementTree.ParseError),
)


@dataclass(frozen=True)
class Outline:
    """One annotated shape.

    Attributes:
        kind: ``polygon`` (the first line is the boundary, others are holes), ``line`` or ``point``.
        lines: lists of points x, y.
        name: name of the shape, or an empty string.
        group: class of the shape in QuPath or its group in ASAP, or an empty string.
        colour: ``#rrggbb``, None if unknown.
        image: number of the image that it belongs to, among those of a bag.
    """

    kind: str
    lines: list[list[Point]]
    name: str
    group: str
    colour: str | None
    image: int = 0

    def __post_init__(self) -> None:
        if not all(isfinite(v) for line in self.lines for point in line for v in point):
            raise ValueError("a coordinate is not a finite number")


def find_annotations(image: Path, given: Path | None) -> Path | None:
    """Return the file of an image's annotations, None if there is none.

    It is ``given`` itself, or has the name of the image and is in the folder ``given`` or, without
    one, beside the image.
    """
    if given is not None and given.is_file():
        return given
    suffixes = _SUFFIXES if given is not None else _SUFFIXES[:2]  # .json may be anything
    for suffix in suffixes:
        if (path := (given or image.parent) / f"{image.stem}{suffix}").is_file():
            return path
    return None


def check_annotations(given: Path, *, images: int) -> None:
    """Raise if ``--annotations`` does not exist, or is one file for several images."""
    if not given.exists():
        raise DataError(f"--annotations {given}: there is no such file or folder")
    if given.is_file() and images > 1:
        raise DataError(
            f"--annotations {given}: one file for {images} images: give a folder of files named "
            "like the images"
        )


def read_outlines(path: str | Path, *, origin: tuple[int, int] = (0, 0)) -> list[Outline]:
    """Read the annotated shapes of a GeoJSON or ASAP XML file.

    Objects of the type tile are skipped: ``ips explain`` writes them, nobody drew them.

    Args:
        path: ``.xml`` is read as ASAP's, anything else as GeoJSON.
        origin: x, y of the pixel that GeoJSON coordinates count from. QuPath counts from the
            corner of the scanned region, ASAP from the corner of the image.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"the file is larger than {_MAX_BYTES // 2**20} MB")
        data = path.read_bytes()
        if path.suffix.lower() == ".xml":
            return list(_asap_outlines(parse_xml(data)))
        return list(_geojson_outlines(json.loads(data), origin))
    except OSError as error:
        reason = because(error, remedy="check the path")
    except _MALFORMED as error:
        reason = because(error, remedy="export them again")
    raise DataError(f"{path.name}: cannot read these annotations {reason}")


def write_geojson(
    path: Path, features: Iterable[dict[str, Any]], *, crs: str | None = None
) -> None:
    """Write a FeatureCollection feature by feature, atomically.

    ``crs`` names the coordinate reference system of a map. It is written as in GeoJSON of 2008,
    which QGIS and GDAL read.
    """
    system = {"type": "name", "properties": {"name": crs}}
    head = "" if crs is None else f'"crs": {json.dumps(system)}, '
    with atomic_write(path) as stream:
        stream.write(f'{{"type": "FeatureCollection", {head}"features": ['.encode())
        for i, feature in enumerate(features):
            stream.write(b",\n" if i else b"\n")
            stream.write(json.dumps(feature, allow_nan=False).encode())
        stream.write(b"\n]}\n")


def polygon_feature(
    corners: Sequence[Sequence[float]], *, name: str, **properties: Any
) -> dict[str, Any]:
    """Return a polygon as a GeoJSON feature, in QuPath an annotation of class ``name``."""
    return {
        "type": "Feature",
        # GeoJSON repeats the first corner at the end.
        "geometry": {"type": "Polygon", "coordinates": [[*corners, corners[0]]]},
        "properties": {
            "objectType": "annotation",
            "classification": {"name": name, "color": [200, 0, 0]},
            **properties,
        },
    }


class _SafeTreeBuilder(ElementTree.TreeBuilder):
    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise ValueError("a document type is not allowed: it could define entities of any size")


def parse_xml(data: str | bytes) -> ElementTree.Element:
    """Parse untrusted XML; raise ValueError if it has a document type."""
    parser = ElementTree.XMLParser(target=_SafeTreeBuilder())
    root: ElementTree.Element = ElementTree.fromstring(data, parser=parser)
    return root


def _asap_outlines(root: ElementTree.Element) -> Iterator[Outline]:
    if root.tag != "ASAP_Annotations":
        raise ValueError(f"the root element is {root.tag}, not ASAP_Annotations")
    colours = {group.get("Name"): group.get("Color") for group in root.iter("Group")}
    for annotation in root.iter("Annotation"):
        name, group = annotation.get("Name", ""), annotation.get("PartOfGroup", "None")
        try:
            points = sorted(
                (float(c.attrib["Order"]), float(c.attrib["X"]), float(c.attrib["Y"]))
                for c in annotation.iter("Coordinate")
            )
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"a Coordinate of annotation {shown(name)} lacks Order, X or Y, or one is no number"
            ) from error
        if not points:
            continue
        if not all(isfinite(order) for order, _, _ in points):
            raise ValueError(f"an Order in annotation {shown(name)} is not a finite number")
        line = [(x, y) for _, x, y in points]
        kind = "point" if annotation.get("Type") in ("Dot", "PointSet") else "polygon"
        colour = _colour(annotation.get("Color") or colours.get(group))
        for part in [line] if kind == "polygon" else [[point] for point in line]:
            yield Outline(kind, [part], name, "" if group == "None" else group, colour)


def _geojson_outlines(value: Any, origin: tuple[int, int]) -> Iterator[Outline]:
    left, top = origin
    if isinstance(value, dict) and "features" in value and value.get("type") != "FeatureCollection":
        raise ValueError(f"its type is {shown(value.get('type'))}, not FeatureCollection")
    features = value if isinstance(value, list) else value.get("features", [value])
    for feature in features:
        properties = feature.get("properties") or {}
        if properties.get("objectType") == "tile":
            continue
        group = properties.get("classification") or {}
        colour = _colour(group.get("color", group.get("colorRGB", properties.get("color"))))
        for kind, lines in _shapes(feature.get("geometry", feature)):
            moved = [[(float(x) + left, float(y) + top) for x, y, *_ in line] for line in lines]
            name, label = (str(owner.get("name") or "") for owner in (properties, group))
            yield Outline(kind, moved, name, label, colour)


def _shapes(geometry: Any) -> Iterator[tuple[str, list[Any]]]:
    """Yield ``kind`` and ``lines`` of every outline in a GeoJSON geometry."""
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


def _colour(value: Any) -> str | None:
    if isinstance(value, str) and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        return value.lower()
    if isinstance(value, int):  # old versions of QuPath: 0xAARRGGBB, signed
        return f"#{value & 0xFFFFFF:06x}"
    if isinstance(value, list) and len(value) == 3 and all(isinstance(v, int) for v in value):
        return "#" + "".join(f"{min(max(v, 0), 255):02x}" for v in value)
    return None
