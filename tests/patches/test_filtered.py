"""Patches that are left out: without tissue, outside or inside outlines."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import torch
from PIL import Image as PILImage

from ips.errors import PatchError
from ips.images import open_image
from ips.patches import (
    ImagePatches,
    MemoryPatches,
    PatchSource,
    PatchSubset,
    filtered,
    sampled,
    tissue_file,
)
from ips.patches.coords_file import NoTissueError
from ips.patches.filtered import PatchFilter
from ips.patches.tissue import TissueSettings, tissue_patches
from ips.patches.view import View, ViewedPatches

SIDE = 32
SHIFTS = ((0.0, 0.0), (0.5, 0.5), (-0.5, 0.25), (0.2, -0.4))


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    """A slide of 320 x 256 px with tissue in the middle."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(240, 245, (256, 320, 3), dtype=np.uint8)
    pixels[70:190, 90:200] = rng.integers(60, 200, (120, 110, 3))
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for level in (pixels, pixels[::2, ::2]):
            file.write(level, tile=(64, 64), photometric="rgb", subfiletype=len(level) < 256)
    return path


def patches(slide: Path, **options: Any) -> ImagePatches:
    return ImagePatches(open_image(slide), **{"patch_size": SIDE, **options})


def darkest(source: PatchSource) -> list[int]:
    values: list[int] = source.read(range(len(source))).flatten(1).min(dim=1).values.tolist()
    return values


def geojson(path: Path, *boxes: tuple[int, int, int, int]) -> Path:
    features = [
        {
            "type": "Feature",
            "properties": {},
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[left, t], [r, t], [r, b], [left, b], [left, t]]],
            },
        }
        for left, t, r, b in boxes
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def store(slide: Path, folder: Path, **options: Any) -> None:
    tissue_file.save_tissue(
        folder / "patches" / "a_patches.h5", tissue_patches(patches(slide, **options))
    )


def test_otsu_keeps_what_the_command_keeps(slide: Path) -> None:
    kept = PatchFilter(tissue="otsu")(patches(slide), slide)
    assert kept.coords.tolist() == tissue_patches(patches(slide)).source.coords.tolist()
    assert 0 < len(kept) < len(patches(slide))


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("shift", SHIFTS)
def test_no_patch_is_on_glass_however_the_grid_is_shifted(
    slide: Path, tmp_path: Path, stored: bool, shift: tuple[float, float]
) -> None:
    if stored:
        store(slide, tmp_path / "tissue", patch_size=64)  # of another grid
    kept = PatchFilter(tissue=str(tmp_path / "tissue") if stored else "otsu")(patches(slide), slide)
    view = ViewedPatches(kept, View(shift=shift))
    assert max(darkest(view)) < 200
    every = patches(slide).shifted(shift)
    on_tissue = {
        tuple(corner)
        for corner, value in zip(every.coords.tolist(), darkest(every), strict=True)
        if value < 200
    }
    found = {tuple(corner) for corner in view.coords.tolist()}
    assert found <= on_tissue
    assert len(found) >= len(on_tissue) - 10  # the search is at half the resolution


def test_a_sample_is_drawn_from_the_patches_of_the_shifted_grid(slide: Path) -> None:
    kept = PatchFilter(tissue="otsu")(patches(slide), slide)
    counts = {len(kept.shifted(shift)) for shift in SHIFTS}
    assert len(counts) > 1  # so indices of one grid do not suit another
    some = sampled(kept, 12, seed=0)
    for shift in SHIFTS:
        moved = some.shifted(shift)
        assert len(moved) == 12
        assert max(darkest(moved)) < 200
    grid = sampled(patches(slide), 12, seed=0)
    assert isinstance(grid, PatchSubset)
    same = grid.shifted((0.3, 0.3))
    assert isinstance(same, PatchSubset)
    assert same.indices.tolist() == grid.indices.tolist()


def test_a_slide_is_searched_once(slide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = PatchFilter(tissue="otsu")
    first = keep(patches(slide), slide)
    monkeypatch.setattr(filtered, "tissue_patches", None)
    again = keep(patches(slide), str(slide))
    copied = pickle.loads(pickle.dumps(keep))(patches(slide), slide)
    for other in (again, copied, pickle.loads(pickle.dumps(first))):
        assert other.coords.tolist() == first.coords.tolist()
        assert (
            other.shifted((0.3, 0.3)).coords.tolist() == first.shifted((0.3, 0.3)).coords.tolist()
        )


def test_a_shift_that_would_leave_nothing_is_not_made(slide: Path, tmp_path: Path) -> None:
    outline = geojson(tmp_path / "a.geojson", (64, 64, 81, 97))  # half of one patch, and no other
    kept = PatchFilter(include=outline)(patches(slide), slide)
    assert kept.coords.tolist() == [[64, 64]]
    assert kept.shifted((-0.5, -0.5)) is kept


def test_a_slide_without_tissue_is_one_sentence(tmp_path: Path) -> None:
    PILImage.new("RGB", (100, 100), (240, 240, 240)).save(tmp_path / "a.png")
    with pytest.raises(
        NoTissueError, match=r"a\.png: no tissue: all of it has the same grey value"
    ):
        PatchFilter(tissue="otsu")(patches(tmp_path / "a.png"), tmp_path / "a.png")
    store(tmp_path / "a.png", tmp_path / "tissue")
    with pytest.raises(
        NoTissueError, match=r"a\.png: no tissue: all of it has the same grey value"
    ):
        PatchFilter(tissue=str(tmp_path / "tissue"))(patches(tmp_path / "a.png"), None)


def test_stored_coordinates_and_pictures_count(slide: Path, tmp_path: Path) -> None:
    corners = np.array([[64, 96], [96, 96]])
    for folder, sizes in (("clam", {"patch_size": SIDE, "patch_level": 0}), ("bare", {})):
        (tmp_path / folder).mkdir()
        with h5py.File(tmp_path / folder / "a.h5", "w") as file:
            file["coords"] = corners
            file["coords"].attrs.update(sizes)
        kept = PatchFilter(tissue=str(tmp_path / folder))(patches(slide), slide)
        assert kept.coords.tolist() == corners.tolist()
    (tmp_path / "masks").mkdir()
    picture = np.zeros((64, 80), np.uint8)
    picture[24:32, 16:32] = 255
    PILImage.fromarray(picture).save(tmp_path / "masks" / "a.png")
    kept = PatchFilter(tissue=str(tmp_path / "masks"))(patches(slide), slide)
    assert kept.coords.tolist() == corners.tolist()
    with pytest.raises(PatchError, match=r"no tissue of a\.tif .*set patches.tissue=otsu"):
        PatchFilter(tissue=str(tmp_path))(patches(slide), slide)


def test_the_share_of_a_stored_search_is_used(slide: Path, tmp_path: Path) -> None:
    found = tissue_patches(patches(slide), TissueSettings(min_share=0.6))
    tissue_file.save_tissue(tmp_path / "a.h5", found)
    kept = PatchFilter(tissue=str(tmp_path))(patches(slide), slide)
    assert kept.coords.tolist() == found.source.coords.tolist()
    assert len(kept) < len(PatchFilter(tissue="otsu")(patches(slide), slide))


def test_outlines_include_and_exclude(slide: Path, tmp_path: Path) -> None:
    geojson(tmp_path / "in" / "a.geojson", (64, 64, 160, 128))
    geojson(tmp_path / "out" / "a.json", (64, 64, 96, 128))
    keep = PatchFilter(tissue="otsu", include=tmp_path / "in", exclude=tmp_path / "out")
    assert keep(patches(slide), slide).coords.tolist() == [[96, 64], [128, 64], [96, 96], [128, 96]]
    only = PatchFilter(exclude=tmp_path / "out")(patches(slide), slide)
    assert len(only) == len(patches(slide)) - 2
    (tmp_path / "empty").mkdir()
    assert len(PatchFilter(exclude=tmp_path / "empty")(patches(slide), slide)) == 80
    with pytest.raises(PatchError, match=r"no outlines of a\.tif"):
        PatchFilter(include=tmp_path / "empty")(patches(slide), slide)
    with pytest.raises(PatchError, match="does not exist: give a file or folder"):
        PatchFilter(exclude=tmp_path / "none")(patches(slide), slide)
    everything = geojson(tmp_path / "all.geojson", (-1, -1, 400, 400))
    with pytest.raises(NoTissueError, match="none of its 80 patches is kept"):
        PatchFilter(exclude=everything)(patches(slide), slide)


def test_patches_that_have_no_image_cannot_be_left_out() -> None:
    features = MemoryPatches(torch.zeros(3, 4), name="a.h5")
    assert PatchFilter()(features, None) is features
    with pytest.raises(PatchError, match=r"a\.h5: patches of stored features cannot be left out"):
        PatchFilter(tissue="otsu")(features, None)
