"""Resolution and depth of a TIFF: from OME metadata, or else from its tags."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from ips.annotations import parse_xml

_MICROMETRES = {"nm": 1e-3, "µm": 1.0, "μm": 1.0, "um": 1.0, "mm": 1e3, "cm": 1e4, "m": 1e6}
_PER_UNIT = {2: 25_400.0, 3: 10_000.0}  # ResolutionUnit: inch, centimetre


def read_mpp(file: Any) -> tuple[float, float] | None:
    """Return the micrometres per pixel along x and y, None if unknown."""
    pixels, aperio = _ome_element(file, "Pixels"), _aperio_number(file, "MPP")
    if aperio:
        sides = [aperio, aperio]
    elif pixels is not None:
        sides = [_physical_size(pixels, axis) for axis in "XY"]
    else:
        sides = [_tag_size(file.pages.first, axis) for axis in "XY"]
    x, y = (side or None for side in sides)
    x, y = x or y, y or x  # one side alone means square pixels
    return None if x is None or y is None else (x, y)


def read_magnification(file: Any) -> float | None:
    """Return the magnification of the objective, as OME or Aperio state it; None if unknown."""
    if aperio := _aperio_number(file, "AppMag"):
        return aperio
    objective = _ome_element(file, "Objective")
    stated = None if objective is None else objective.get("NominalMagnification")
    return float(stated) if stated else None


def read_white(file: Any) -> float | None:
    """Return the largest value that a TIFF states to use, such as 4095 of a 12-bit camera.

    Some programs store the largest value of the image itself, which would change from image to
    image, so only the largest value of a number of bits counts. None if unknown.
    """
    pixels = _ome_element(file, "Pixels")
    bits = 0 if pixels is None else int(pixels.get("SignificantBits", 0))
    stated = file.pages.first.tags.valueof("MaxSampleValue")
    values = stated if isinstance(stated, tuple) else (stated,)
    largest = max((v for v in values if isinstance(v, int)), default=0)
    if not bits and largest & (largest + 1) == 0:
        bits = largest.bit_length()
    return 2.0**bits - 1 if 8 < bits <= 16 else None


def _aperio_number(file: Any, key: str) -> float:
    """A number that Aperio writes into the description as ``|MPP = 0.2520|``; 0 if it is not."""
    if not file.is_svs:
        return 0.0
    match = re.search(rf"\|\s*{key}\s*=\s*(\d+(?:\.\d+)?)", str(file.pages.first.description))
    return float(match[1]) if match else 0.0


def _ome_element(file: Any, kind: str) -> ElementTree.Element | None:
    if not file.is_ome:
        return None
    root = parse_xml(file.ome_metadata)
    return next((e for e in root.iter() if e.tag.rpartition("}")[2] == kind), None)


def _physical_size(pixels: ElementTree.Element, axis: str) -> float:
    size = float(pixels.get(f"PhysicalSize{axis}", 0))
    return size * _MICROMETRES.get(pixels.get(f"PhysicalSize{axis}Unit", "µm"), 0.0)


def _tag_size(page: Any, axis: str) -> float:
    numerator, denominator = page.tags.valueof(f"{axis}Resolution") or (0, 1)
    unit = _PER_UNIT.get(int(page.tags.valueof("ResolutionUnit", default=2)))
    return unit * denominator / numerator if unit and numerator else 0.0
