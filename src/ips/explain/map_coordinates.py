"""The map coordinates of a georeferenced image, such as a GeoTIFF."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ips.errors import ImageError, because, require


@dataclass(frozen=True)
class MapCoordinates:
    """Converts full-resolution pixels of an image to the coordinates of its map.

    Attributes:
        matrix: a, b, c, d, e and f in ``a x + b y + c`` and ``d x + e y + f``.
        crs: coordinate reference system, such as ``urn:ogc:def:crs:EPSG::32632``, or its definition
            as well-known text; None if the file does not say.
    """

    matrix: tuple[float, float, float, float, float, float]
    crs: str | None

    def ring(self, corners: Sequence[Sequence[float]]) -> list[list[float]]:
        """A closed line of x, y in map coordinates, in the same sense of rotation.

        On most maps y goes up, in images it goes down, so the order of the corners is reversed.
        """
        a, b, c, d, e, f = self.matrix
        ring = [[a * x + b * y + c, d * x + e * y + f] for x, y in corners]
        return ring[::-1] if a * e - b * d < 0 else ring


def read_map_coordinates(path: Path) -> MapCoordinates:
    """Read how the pixels of an image file lie on a map; needs rasterio (extra ``geo``)."""
    require("rasterio")
    import rasterio

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
            with rasterio.open(path) as file:
                transform, crs = file.transform, file.crs
    except (rasterio.errors.RasterioError, OSError) as error:
        reason = because(error, remedy="leave out --map-coordinates")
        raise ImageError(f"{path.name}: its map coordinates cannot be read {reason}") from error
    if transform.is_identity:
        raise ImageError(f"{path.name} has no map coordinates: leave out --map-coordinates")
    name: str | None = None
    if crs:
        authority = crs.to_authority()
        name = f"urn:ogc:def:crs:{'::'.join(authority)}" if authority else crs.to_wkt()
    a, b, c, d, e, f = (float(value) for value in tuple(transform)[:6])
    return MapCoordinates((a, b, c, d, e, f), name)
