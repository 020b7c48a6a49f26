from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PILImage

import ips
from ips.data.synthetic import tissue_slides as module
from ips.data.synthetic.tissue_drawing import TissueSlide
from ips.data.synthetic.tissue_parts import TILE, Cluster
from ips.data.synthetic.tissue_slides import (
    MASK_STEP,
    SMALLEST_SIDE,
    abnormal_patches,
    load_clusters,
    write_tissue_slides,
)
from ips.data.table import read_table
from ips.errors import DataError
from ips.patches.image import ImagePatches
from ips.patches.tissue import tissue_patches

SIDE = SMALLEST_SIDE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slides")
    write_tissue_slides(folder, count=6, side=SIDE, seed=3)
    return folder


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "slides.csv").open() as stream:
        return list(csv.DictReader(stream))


def names(folder: Path, tumor: str) -> list[str]:
    return [Path(row["path"]).stem for row in rows(folder) if row["tumor"] == tumor]


def mask_of(folder: Path, name: str) -> np.ndarray:
    with PILImage.open(folder / "masks" / f"{name}.png") as picture:
        return np.asarray(picture)


def test_the_table_has_both_classes_in_both_splits(folder: Path) -> None:
    found = read_table(folder / "slides.csv", tasks=["tumor"])
    assert [row.labels["tumor"] for row in found].count("1") == 3
    for split, each in (("train", 2), ("test", 1)):
        labels = [row.labels["tumor"] for row in found if row.split == split]
        assert sorted(labels) == ["0"] * each + ["1"] * each


def test_slides_are_pyramids_with_a_resolution(folder: Path) -> None:
    for row in rows(folder):
        with ips.open_image(folder / row["path"]) as image:
            assert image.mpp == pytest.approx((0.5, 0.5))
            assert image.level_dimensions == ((SIDE, SIDE), (SIDE // 4,) * 2, (SIDE // 16,) * 2)
            assert image.tile_size(0) == (TILE, TILE)
            fine = image.read_region((0, 0), 0, (SIDE, SIDE))
            coarse = image.read_region((0, 0), 2, (SIDE // 16, SIDE // 16)).astype(int)
        by_hand = np.asarray(PILImage.fromarray(fine).reduce(16)).astype(int)
        assert np.abs(by_hand - coarse).mean() < 6  # JPEG


def test_labels_match_masks_and_outlines(folder: Path) -> None:
    for name in names(folder, "0"):
        assert not mask_of(folder, name).any()
        assert load_clusters(folder / "truth" / f"{name}.geojson") == []
    for name in names(folder, "1"):
        mask = mask_of(folder, name)
        assert mask.shape == (SIDE // MASK_STEP, SIDE // MASK_STEP)
        clusters = load_clusters(folder / "truth" / f"{name}.geojson")
        assert 1 <= len(clusters) <= 4
        painted = np.zeros_like(mask)
        for cluster in clusters:
            x, y = (cluster.nuclei[:, :2] / MASK_STEP).astype(int).T
            assert mask[y, x].all()
            low, high = cluster.outline.min(axis=0), cluster.outline.max(axis=0)
            (left, top), (right, bottom) = (low // MASK_STEP), (high // MASK_STEP + 1)
            painted[int(top) : int(bottom) + 1, int(left) : int(right) + 1] = True
        assert not (mask & ~painted).any()


def test_outlines_are_closed_polygons_around_the_nuclei(folder: Path) -> None:
    (name, *_) = names(folder, "1")
    truth = json.loads((folder / "truth" / f"{name}.geojson").read_text())
    assert truth["type"] == "FeatureCollection"
    for feature in truth["features"]:
        (ring,) = feature["geometry"]["coordinates"]
        assert ring[0] == ring[-1]
        corners = np.array(ring)
        assert ((corners >= 0) & (corners <= SIDE)).all()
        nuclei = np.array(feature["properties"]["nuclei"])
        assert (corners.min(axis=0) <= nuclei[:, :2].min(axis=0)).all()
        assert (corners.max(axis=0) >= nuclei[:, :2].max(axis=0)).all()


def test_abnormal_nuclei_are_the_darkest_and_in_tissue(folder: Path) -> None:
    for name in names(folder, "1"):
        with ips.open_image(folder / "slides" / f"{name}.tif") as image:
            patches = ImagePatches(image, patch_size=64)
            kept = tissue_patches(patches)
            grey = np.asarray(
                PILImage.fromarray(image.read_region((0, 0), 0, (SIDE, SIDE))).convert("L")
            )
        clusters = load_clusters(folder / "truth" / f"{name}.geojson")
        wrong = abnormal_patches(clusters, patches.coords, extent=64)
        assert set(np.flatnonzero(wrong)) <= set(kept.kept.tolist())
        # The mean over a nucleus' size is darkest where abnormal nuclei are.
        blurred = np.asarray(PILImage.fromarray(grey).reduce(16))
        y, x = np.unravel_index(np.argmin(blurred), blurred.shape)
        centres = np.concatenate([cluster.nuclei[:, :2] for cluster in clusters])
        assert np.linalg.norm(centres - (16 * x + 8, 16 * y + 8), axis=1).min() < 24


@pytest.mark.parametrize("size", [64, 100])
def test_abnormal_patches_agree_with_the_mask(folder: Path, size: int) -> None:
    for row in rows(folder):
        name = Path(row["path"]).stem
        patches = ips.open_patches(folder / row["path"], patch_size=size, stride=size // 2)
        clusters = load_clusters(folder / "truth" / f"{name}.geojson")
        found = abnormal_patches(clusters, patches.coords, extent=size)
        assert found.any() == (row["tumor"] == "1")
        mask = mask_of(folder, name)
        step = size / MASK_STEP
        for (x, y), abnormal in zip(patches.coords / MASK_STEP, found, strict=True):
            inside = mask[int(y) : int(y + step), int(x) : int(x + step)]
            assert inside.any() or not abnormal
            assert abnormal or inside.mean() < 0.5


def test_abnormal_patches_contain_the_centre_of_a_nucleus() -> None:
    clusters = [Cluster(np.array([[100.0, 50.0, 10.0], [130.0, 50.0, 10.0]]))]
    coords = np.array([[0, 0], [64, 0], [128, 0], [64, 64], [101, 0], [90, 41]])
    found = abnormal_patches(clusters, coords, extent=64)
    assert found.tolist() == [False, True, True, False, True, True]
    assert not abnormal_patches([], coords, extent=64).any()
    assert abnormal_patches(clusters, coords[:0], extent=64).shape == (0,)


def test_files_depend_on_the_seed_and_tiles_not_on_their_order(
    folder: Path, tmp_path: Path
) -> None:
    write_tissue_slides(tmp_path, count=2, side=SIDE, seed=3)
    for path in sorted(tmp_path.glob("*/*")):
        assert path.read_bytes() == (folder / path.relative_to(tmp_path)).read_bytes()
    forth = TissueSlide(SIDE, seed=3, number=0, abnormal=True)
    back = TissueSlide(SIDE, seed=3, number=0, abnormal=True)
    places = [(1, 1), (2, 1), (1, 2)]
    tiles = {place: forth.tile(*place) for place in places}
    for place in reversed(places):
        assert np.array_equal(back.tile(*place), tiles[place])
    other = TissueSlide(SIDE, seed=4, number=0, abnormal=True)
    assert not np.array_equal(other.tile(1, 1), tiles[1, 1])


def test_abnormal_nuclei_are_the_only_difference() -> None:
    with_them = TissueSlide(SIDE, seed=3, number=0, abnormal=True)
    without = TissueSlide(SIDE, seed=3, number=0, abnormal=False)
    assert with_them.clusters
    assert not without.clusters
    tiles = range(SIDE // TILE)
    changed = [
        (column, row)
        for row in tiles
        for column in tiles
        if not np.array_equal(with_them.tile(column, row), without.tile(column, row))
    ]
    centres = np.concatenate([cluster.nuclei[:, :2] for cluster in with_them.clusters])
    near = {tuple(tile) for tile in (centres // TILE).astype(int).tolist()}
    assert near <= set(changed)
    reach = np.array([[-80, -80], [-80, 80], [80, -80], [80, 80], [0, 0]])
    touched = ((centres[:, None] + reach).reshape(-1, 2) // TILE).astype(int)
    assert set(changed) <= {tuple(tile) for tile in touched.tolist()}


def test_an_interrupted_call_is_continued(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 1:
            raise StopError

    with pytest.raises(StopError):
        write_tissue_slides(tmp_path, count=2, side=SIDE, seed=3, progress=stop)
    first = tmp_path / "slides" / "slide-000.tif"
    assert not (tmp_path / "slides.csv").exists()
    before = first.stat().st_mtime_ns
    write_tissue_slides(tmp_path, count=2, side=SIDE, seed=3)
    assert first.stat().st_mtime_ns == before
    assert len(rows(tmp_path)) == 2
    assert not list(tmp_path.glob("**/*.part"))
    monkeypatch.setattr(module, "_write", None)  # nothing is drawn a second time
    write_tissue_slides(tmp_path, count=2, side=SIDE, seed=3)
    with pytest.raises(DataError, match="another folder"):
        write_tissue_slides(tmp_path, count=2, side=SIDE, seed=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"count": 1}, "count=1"),
        ({"side": 1000}, "multiple of 256"),
        ({"side": 512}, "1024 or more"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        write_tissue_slides(tmp_path / "new", **settings)
    assert not (tmp_path / "new").exists()


def test_a_wrong_ground_truth_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        load_clusters(tmp_path / "a.geojson")
    for text in (b'{"features": [{}]}', b"\xff" * 2000, b"[" * 20_000, b"[1]"):
        (tmp_path / "a.geojson").write_bytes(text)
        with pytest.raises(DataError, match=r"a\.geojson is not the ground truth .{,300}$"):
            load_clusters(tmp_path / "a.geojson")


def test_the_number_of_clusters_is_a_setting(tmp_path: Path) -> None:
    few, many = (
        [
            len(TissueSlide(4096, seed=0, number=n, abnormal=True, clusters=c).clusters)
            for n in range(8)
        ]
        for c in ((1, 2), (2, 4))
    )
    assert set(few) == {1, 2}
    assert set(many) == {2, 3, 4}
    write_tissue_slides(tmp_path, count=2, side=SIDE, clusters=(1, 1))
    with pytest.raises(DataError, match="choose another folder"):
        write_tissue_slides(tmp_path, count=2, side=SIDE)


def test_a_large_nucleus_may_end_at_the_margin_of_a_tile() -> None:
    slide = TissueSlide(SIDE, seed=0, number=0, abnormal=True)
    slide.clusters = [Cluster(np.array([[2 * TILE + 19.7, 1.5 * TILE, 13.9]]))]
    assert slide.tile(1, 1).shape == (TILE, TILE, 3)
