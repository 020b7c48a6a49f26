"""Outlines in the map coordinates of a GeoTIFF."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ips.annotations import write_geojson
from ips.errors import ImageError, MissingPackageError
from ips.explain.geojson import patch_features
from ips.explain.map_coordinates import MapCoordinates, read_map_coordinates
from ips.images import open_image
from ips.patches import PatchSource, open_patches
from tests.explain.explained import explained

UTM = "urn:ogc:def:crs:EPSG::32632"
# 10 m per pixel, north is up
MATRIX = (10.0, 0.0, 500_000.0, 0.0, -10.0, 5_800_000.0)


@pytest.fixture
def source() -> PatchSource:
    image = open_image(np.zeros((100, 140), np.uint8))
    image.bounds = (20, 0, 120, 100)  # maps count from the corner of the file nevertheless
    return open_patches(image, patch_size=20)


def test_outlines_on_a_map(source: PatchSource, tmp_path: Path) -> None:
    place = MapCoordinates(MATRIX, UTM)
    features = list(patch_features(explained(source), all_patches=True, on_map=place))
    for feature, (x, y) in zip(features, source.coords.tolist(), strict=True):
        ring = np.array(feature["geometry"]["coordinates"][0])
        assert ring[0].tolist() == ring[-1].tolist()
        assert ring.min(axis=0).tolist() == [500_000 + 10 * x, 5_800_000 - 10 * (y + 20)]
        assert ring.max(axis=0).tolist() == [500_000 + 10 * (x + 20), 5_800_000 - 10 * y]
        u, v = ring.T
        assert (u[:-1] * v[1:] - u[1:] * v[:-1]).sum() > 0  # counterclockwise
    write_geojson(tmp_path / "a.geojson", features, crs=UTM)
    written = json.loads((tmp_path / "a.geojson").read_text())
    assert written["crs"] == {"type": "name", "properties": {"name": UTM}}
    assert len(written["features"]) == len(source)


def stand_in(monkeypatch: pytest.MonkeyPatch, **about: Any) -> None:
    """Install a module in the place of rasterio, which opens one file."""

    class File(SimpleNamespace):
        def __enter__(self) -> File:
            return self

        def __exit__(self, *error: object) -> None: ...

    class RasterioError(Exception): ...

    def opened(path: Path) -> File:
        if not about:
            raise RasterioError("not recognised")
        return File(**about)

    module = ModuleType("rasterio")
    errors = SimpleNamespace(RasterioError=RasterioError, NotGeoreferencedWarning=UserWarning)
    monkeypatch.setattr(module, "errors", errors, raising=False)
    monkeypatch.setattr(module, "open", opened, raising=False)
    monkeypatch.setitem(sys.modules, "rasterio", module)
    monkeypatch.setattr("ips.explain.map_coordinates.require", lambda name: None)


class Affine(tuple[float, ...]):
    is_identity = False


class TestStandIn:
    def test_named_system(self, monkeypatch: pytest.MonkeyPatch) -> None:
        crs = SimpleNamespace(to_authority=lambda: ("EPSG", "32632"))
        stand_in(monkeypatch, transform=Affine((*MATRIX, 0.0, 0.0, 1.0)), crs=crs)
        assert read_map_coordinates(Path("a.tif")) == MapCoordinates(MATRIX, UTM)

    def test_system_without_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        crs = SimpleNamespace(to_authority=lambda: None, to_wkt=lambda: "LOCAL_CS[...]")
        stand_in(monkeypatch, transform=Affine((*MATRIX, 0.0, 0.0, 1.0)), crs=crs)
        assert read_map_coordinates(Path("a.tif")).crs == "LOCAL_CS[...]"

    def test_no_map(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stand_in(monkeypatch, transform=SimpleNamespace(is_identity=True), crs=None)
        with pytest.raises(ImageError, match=r"a\.tif has no map coordinates: leave out --map"):
            read_map_coordinates(Path("a.tif"))

    def test_unreadable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stand_in(monkeypatch)
        with pytest.raises(ImageError, match=r"a\.tif: its map .* \(not recognised\): leave out"):
            read_map_coordinates(Path("a.tif"))


def test_a_missing_rasterio_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rasterio", None)
    with pytest.raises(MissingPackageError, match=r"pip install '.*\[geo\]'"):
        read_map_coordinates(Path("a.tif"))


class TestRasterio:
    def test_geotiff(self, tmp_path: Path) -> None:
        rasterio = pytest.importorskip("rasterio")
        path, bands = tmp_path / "a.tif", 4
        pixels = np.random.default_rng(0).integers(0, 4096, (bands, 60, 80), dtype=np.uint16)
        options = {"count": bands, "width": 80, "height": 60, "dtype": "uint16"}
        place = rasterio.Affine(*MATRIX)
        with rasterio.open(path, "w", "GTiff", crs="EPSG:32632", transform=place, **options) as to:
            to.write(pixels)
        assert read_map_coordinates(path) == MapCoordinates(MATRIX, UTM)
        image = open_image(path, white=4095)
        assert image.channels == bands
        found = image.read_region((10, 20), 0, (8, 9))
        expected = np.rint(pixels[:, 20:29, 10:18] * (255 / 4095)).transpose(1, 2, 0)
        np.testing.assert_array_equal(found, expected)

    def test_plain_tiff(self, tmp_path: Path) -> None:
        pytest.importorskip("rasterio")
        import tifffile

        tifffile.imwrite(tmp_path / "a.tif", np.zeros((20, 20), np.uint8))
        with pytest.raises(ImageError, match=r"a\.tif has no map coordinates"):
            read_map_coordinates(tmp_path / "a.tif")
        (tmp_path / "b.tif").write_bytes(b"no image")
        with pytest.raises(ImageError, match=r"b\.tif: its map coordinates cannot be read"):
            read_map_coordinates(tmp_path / "b.tif")
