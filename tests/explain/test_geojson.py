"""GeoJSON of patches: RFC 7946, properties for QuPath, exact positions."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import tifffile
import torch

from ips.annotations import write_geojson
from ips.errors import PatchError
from ips.explain.export import write_patches
from ips.images import open_image
from ips.patches import MemoryPatches, PatchSource, PatchSubset, open_patches
from tests.explain.explained import explained


@pytest.fixture
def source() -> PatchSource:
    return open_patches(np.zeros((100, 140), np.uint8), patch_size=20, stride=10)


@pytest.fixture
def slide(tmp_path: Path) -> PatchSource:
    """Level 1 of a pyramid whose scanned part begins at 24, 8."""
    pixels = np.random.default_rng(0).integers(0, 256, (160, 240, 3), dtype=np.uint8)
    options: dict[str, Any] = {"photometric": "rgb", "tile": (32, 32)}
    with tifffile.TiffWriter(tmp_path / "slide.tif") as file:
        file.write(pixels, **options)
        file.write(np.ascontiguousarray(pixels[::2, ::2]), subfiletype=1, **options)
    image = open_image(tmp_path / "slide.tif")
    image.bounds = (24, 8, 200, 144)
    return open_patches(image, patch_size=20, stride=10, level=1)


def check(text: str) -> list[dict[str, Any]]:
    """What the specification asks of a FeatureCollection of polygons."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    whole = json.loads(text, parse_constant=refuse)
    assert whole["type"] == "FeatureCollection"
    features: list[dict[str, Any]] = whole["features"]
    for feature in features:
        assert set(feature) == {"type", "id", "geometry", "properties"}
        assert feature["type"] == "Feature"
        UUID(feature["id"])
        assert feature["geometry"]["type"] == "Polygon"
        rings = feature["geometry"]["coordinates"]
        assert len(rings) == 1
        ring = np.array(rings[0], dtype=float)
        assert ring.shape == (5, 2)
        assert (ring[0] == ring[-1]).all()
        x, y = ring.T
        area = (x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2
        assert area > 0  # the right-hand rule: counterclockwise where y goes up
        assert area == np.ptp(x) * np.ptp(y)
    assert len({feature["id"] for feature in features}) == len(features)
    return features


def corners(features: list[dict[str, Any]]) -> list[list[int]]:
    return [feature["geometry"]["coordinates"][0][0] for feature in features]


@pytest.mark.parametrize("everything", [False, True])
def test_features_follow_the_specification(
    source: PatchSource, tmp_path: Path, everything: bool
) -> None:
    seen = explained(source, classes=4)
    features = seen.to_geojson(all_patches=everything)["features"]
    write_geojson(tmp_path / "a.geojson", iter(features))
    read = check((tmp_path / "a.geojson").read_text())
    assert read == json.loads(json.dumps(features))
    assert [path.name for path in tmp_path.iterdir()] == ["a.geojson"]  # no temporary file
    number = {tuple(place): i for i, place in enumerate(source.coords.tolist())}
    indices = [number[tuple(corner)] for corner in corners(read)]
    assert indices == (list(range(len(source))) if everything else seen.indices.tolist())
    assert [f["properties"]["measurements"]["patch"] for f in read] == indices
    extents = [np.ptp(f["geometry"]["coordinates"][0], axis=0).tolist() for f in read]
    assert extents == [[20, 20]] * len(read)


def test_no_features_give_an_empty_collection(tmp_path: Path) -> None:
    write_geojson(tmp_path / "a.geojson", [])
    assert check((tmp_path / "a.geojson").read_text()) == []


def test_features_have_the_properties_that_qupath_reads(source: PatchSource) -> None:
    seen = explained(source, classes=2, names=["ham", "egg"], tasks=("a", "b"))
    features = seen.to_geojson(all_patches=True)["features"]
    kept = set(seen.indices.tolist())
    for index, feature in enumerate(features):
        properties = feature["properties"]
        assert properties["objectType"] == "tile"
        assert properties["isLocked"] is True
        measured = properties["measurements"]
        assert all(isinstance(value, int | float) for value in measured.values())
        assert measured["attention: b"] == seen.all_attention["b"][index]
        mean = (seen.all_attention["a"][index] + seen.all_attention["b"][index]) / 2
        assert measured["attention"] == pytest.approx(mean)
        assert ("classification" in properties) == (index in kept)
        assert ("probability: egg" in measured) == (index in kept)
    assert seen.patch_probabilities is not None
    for k, index in enumerate(seen.indices.tolist()):
        label = int(seen.patch_probabilities[k].argmax())
        shown = features[index]["properties"]["classification"]
        assert shown["name"] == ["ham", "egg"][label]
        assert len(shown["color"]) == 3
        assert all(isinstance(part, int) and 0 <= part <= 255 for part in shown["color"])


def test_without_a_read_out_the_selected_patches_share_a_class(source: PatchSource) -> None:
    features = explained(source).to_geojson()["features"]
    assert {f["properties"]["classification"]["name"] for f in features} == {"selected"}


def test_ids_are_the_same_in_every_export(source: PatchSource) -> None:
    assert explained(source).to_geojson() == explained(source).to_geojson()


class TestPlaces:
    def test_slide_with_an_offset_at_level_1(self, slide: PatchSource) -> None:
        features = check(json.dumps(explained(slide).to_geojson(all_patches=True)))
        column, row = np.meshgrid(np.arange(9), np.arange(6))
        cropped = np.stack([column.ravel(), row.ravel()], axis=1) * 20  # stride 10 at level 1
        assert corners(features) == cropped.tolist()
        whole = check(json.dumps(explained(slide).to_geojson(all_patches=True, crop=False)))
        assert corners(whole) == (cropped + np.array([24, 8])).tolist()
        sides = [np.ptp(f["geometry"]["coordinates"][0], axis=0).tolist() for f in features]
        assert sides == [[40, 40]] * len(features)

    def test_outlines_enclose_the_pixels_of_the_patch(self, slide: PatchSource) -> None:
        image = slide.image  # type: ignore[attr-defined]
        for feature in explained(slide).to_geojson(crop=False)["features"]:
            ring = np.array(feature["geometry"]["coordinates"][0])
            index = feature["properties"]["measurements"]["patch"]
            size = (np.ptp(ring, axis=0) // 2).tolist()
            region = image.read_region(tuple(ring[0].tolist()), 1, size)
            assert np.array_equal(region.transpose(2, 0, 1), slide.read([index])[0].numpy())

    def test_sample_of_the_patches(self, slide: PatchSource) -> None:
        sample = PatchSubset(slide, np.array([3, 10, 11, 53]))
        features = explained(sample).to_geojson(all_patches=True)["features"]
        assert corners(features) == (slide.coords[[3, 10, 11, 53]] - np.array([24, 8])).tolist()


def test_patches_of_unknown_size_cannot_be_outlined() -> None:
    bag = MemoryPatches(torch.rand(6, 4), name="bag.h5")
    seen = explained(bag)
    with pytest.raises(PatchError, match=r"bag\.h5: the patch size is unknown"):
        seen.to_geojson()


class TestTable:
    def test_table_has_a_line_per_patch(self, source: PatchSource, tmp_path: Path) -> None:
        seen = explained(source, classes=2, names=["ham", "egg, fried"], tasks=("a", "b"))
        write_patches(tmp_path / "p.csv", seen)
        with (tmp_path / "p.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert [int(line["index"]) for line in lines] == list(range(len(source)))
        places = [[int(line["x"]), int(line["y"])] for line in lines]
        assert places == source.coords.tolist()
        for task in "ab":
            got = [float(line[f"attention_{task}"]) for line in lines]
            np.testing.assert_allclose(got, seen.all_attention[task], rtol=1e-8)
        assert sum(float(line["attention"]) for line in lines) == pytest.approx(1)
        kept = [line for line in lines if line["selected"] == "1"]
        assert {int(line["index"]) for line in kept} == set(seen.indices.tolist())
        assert seen.patch_probabilities is not None
        for k, index in enumerate(seen.indices.tolist()):
            got = [float(lines[index][f"probability_{name}"]) for name in ("ham", "egg, fried")]
            np.testing.assert_allclose(got, seen.patch_probabilities[k].numpy(), rtol=1e-5)
        others = [line for line in lines if line["selected"] == "0"]
        assert {line["probability_ham"] for line in others} == {""}
        assert [path.name for path in tmp_path.iterdir()] == ["p.csv"]  # no temporary file

    def test_features_of_unknown_patch_size(self, tmp_path: Path) -> None:
        bag = MemoryPatches(torch.rand(6, 4))
        seen = explained(bag)
        write_patches(tmp_path / "p.csv", seen)
        head, first, *_ = (tmp_path / "p.csv").read_text().splitlines()
        assert head == "index,x,y,extent,attention,attention_grade,selected"
        assert first.startswith("0,0,0,,")
