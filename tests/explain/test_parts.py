"""Explanations of bags of several images or magnifications: everything is shown per image."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image as PILImage

from ips.annotations import polygon_feature, write_geojson
from ips.errors import PatchError
from ips.explain import attention_map, percentiles
from ips.explain.export import omissions, part_stems, write_explanation
from ips.explain.figures.attention import draw_attention
from ips.explain.figures.overlay import overlay_page
from ips.explain.maps import all_values
from ips.patches import JoinedPatches, open_patches
from tests.explain.explained import explained


def image(number: int) -> np.ndarray:
    shape = (40 + 20 * number, 60, 3)
    return np.random.default_rng(number).integers(60, 255, shape, dtype=np.uint8)


def patient() -> JoinedPatches:
    sources = [open_patches(image(i), patch_size=10) for i in range(2)]
    for number, source in enumerate(sources):
        source.name = f"{number}.png"
    return JoinedPatches(sources, name="p1")


def two_magnifications() -> JoinedPatches:
    sources = [open_patches(image(0), patch_size=10, scale=scale) for scale in (1.0, 0.5)]
    for source in sources:
        source.name = "a.svs"
    return JoinedPatches(sources, name="a.svs", magnifications=[20, 10])


def test_parts_have_their_patches_and_their_share_of_the_attention() -> None:
    whole = explained(patient(), keep=9, tasks=("a", "b"), classes=2)
    parts = whole.by_part()
    assert [part.name for part in parts] == ["0.png", "1.png"]
    assert np.array_equal(
        np.concatenate([part.mean_attention for part in parts]), whole.mean_attention
    )
    assert whole.shares == pytest.approx([part.mean_attention.sum() for part in parts])
    assert sum(whole.shares) == pytest.approx(1)
    assert sum(len(part.indices) for part in parts) == 9
    for part, first in zip(parts, (0, len(parts[0].source)), strict=True):
        for index, corner, share in zip(part.indices, part.coords, part.attention, strict=True):
            place = whole.indices.tolist().index(int(index) + first)
            assert corner.tolist() == part.source.coords[int(index)].tolist()
            assert share == whole.attention[place]
        assert part.patch_probabilities is not None
        assert len(part.patch_probabilities) == len(part.indices)


def test_one_image_is_its_only_part() -> None:
    whole = explained(open_patches(image(0), patch_size=10))
    assert whole.by_part() == [whole]


def test_several_images_have_no_common_map() -> None:
    whole = explained(patient())
    with pytest.raises(PatchError, match=r"p1: consists of 2 images .* by_part"):
        whole.map()
    with pytest.raises(PatchError, match="p1: consists of 2 images"):
        whole.to_geojson()


def test_annotations_belong_to_their_image(tmp_path: Path) -> None:
    files = [tmp_path / "a.png", tmp_path / "b.png", tmp_path / "c.png"]
    for number, file in enumerate(files):
        PILImage.fromarray(image(number)).save(file)
    for file, x in zip(files[:2], (10, 20), strict=True):
        square = polygon_feature([(x, 0), (x + 10, 0), (x + 10, 10)], name=file.stem)
        write_geojson(file.with_suffix(".geojson"), [square])
    files[2].with_suffix(".xml").write_text("<annotation/>")
    bag = JoinedPatches([open_patches(file, patch_size=10) for file in files], name="p1")
    whole, notes = explained(bag).annotated()
    assert [(outline.image, outline.group) for outline in whole.outlines] == [(0, "a"), (1, "b")]
    assert len(notes) == 1
    assert "c.xml: cannot read these annotations" in notes[0]
    found = [[outline.lines[0][0] for outline in part.outlines] for part in whole.by_part()]
    assert found == [[(10, 0)], [(20, 0)], []]
    one = overlay_page(whole).png()
    assert one != overlay_page(replace(whole, outlines=whole.outlines[:1])).png()


def test_percentiles_are_taken_among_all_images() -> None:
    parts = explained(patient()).by_part()
    maps = [part.map() for part in parts]
    ranks = [percentiles(each.values, among=all_values(maps)) for each in maps]
    together = np.concatenate([rank.ravel() for rank in ranks])
    assert np.array_equal(together, percentiles(all_values(maps)))
    assert together.max() == 1
    assert min(rank.max() for rank in ranks) < 1


def test_maps_of_magnifications_have_their_own_cells() -> None:
    fine, coarse = explained(two_magnifications()).by_part()
    assert (fine.map().cell, coarse.map().cell) == (10, 20)
    expected = attention_map(fine.source, fine.mean_attention).values
    np.testing.assert_array_equal(fine.map().values, expected)


def test_every_image_has_its_geojson_and_map(tmp_path: Path) -> None:
    whole = explained(patient(), keep=9, classes=2)
    files = write_explanation(tmp_path, whole, stem="p1")
    assert {file.name for file in files} == {
        *("p1-patches.csv", "p1-overlay.png", "p1-gallery.png", "p1-classes.png"),
        *("p1--0.geojson", "p1--0-map.tif", "p1--1.geojson", "p1--1-map.tif"),
    }
    assert all(file.is_file() for file in files)
    for number, part in enumerate(whole.by_part()):
        found = json.loads((tmp_path / f"p1--{number}.geojson").read_text())["features"]
        corners = [feature["geometry"]["coordinates"][0][0] for feature in found]
        assert corners == part.coords.tolist()
        height, width = tifffile.imread(tmp_path / f"p1--{number}-map.tif").shape[:2]
        assert (width, height) == (60, 40 + 20 * number)
    with (tmp_path / "p1-patches.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["image"] for row in rows] == ["0.png"] * 24 + ["1.png"] * 36
    assert [int(row["patch"]) for row in rows] == [*range(24), *range(36)]
    assert [row["extent"] for row in rows] == ["10"] * 60
    assert omissions(whole) == []


def test_patches_of_each_magnification_have_their_size(tmp_path: Path) -> None:
    whole = explained(two_magnifications(), keep=9)
    files = {file.name for file in write_explanation(tmp_path, whole, stem="a")}
    assert {"a--20x.geojson", "a--10x.geojson", "a--20x-map.tif", "a--10x-map.tif"} <= files
    with (tmp_path / "a-patches.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["magnification"], row["extent"]) for row in rows} == {("20", "10"), ("10", "20")}
    for feature in json.loads((tmp_path / "a--10x.geojson").read_text())["features"]:
        ring = np.array(feature["geometry"]["coordinates"][0])
        assert (ring.max(axis=0) - ring.min(axis=0)).tolist() == [20, 20]


def test_images_of_one_name_have_different_files() -> None:
    parts = JoinedPatches(
        [open_patches(image(0), patch_size=10) for _ in range(3)], name="p1"
    ).parts
    assert len(set(part_stems("p1", parts))) == 3


def test_figures_show_every_image(tmp_path: Path) -> None:
    one, two = explained(open_patches(image(0), patch_size=10)), explained(patient(), keep=9)
    sizes = []
    for number, each in enumerate((one, two)):
        overlay_page(each).save(tmp_path / f"overlay-{number}.png")
        draw_attention(tmp_path / f"attention-{number}.png", [each])
        for kind in ("overlay", "attention"):
            with PILImage.open(tmp_path / f"{kind}-{number}.png") as picture:
                sizes.append(picture.size)
    overlay, attention, overlays, attentions = sizes
    assert overlays[0] > 1.5 * overlay[0]
    assert attentions[0] > 1.5 * attention[0]


def test_an_image_without_selected_patches_can_be_drawn(tmp_path: Path) -> None:
    whole = explained(patient(), keep=1)
    assert sorted(len(part.indices) for part in whole.by_part()) == [0, 1]
    draw_attention(tmp_path / "a.png", [whole])
    assert len(write_explanation(tmp_path, whole, stem="p1")) == 7
