"""The result of the tissue filter in a file: written by us, read by us and by other tools."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from ips.errors import PatchError
from ips.patches.image import ImagePatches
from ips.patches.tissue import Tissue, tissue_patches
from ips.patches.tissue_file import load_tissue, save_tissue
from tests.patches.test_tissue import Pyramid, noise, reduced, slide


def stored(folder: Path) -> tuple[Path, Tissue]:
    image = Pyramid([slide(), reduced(slide(), 2)], mpp=(0.25, 0.25))
    patches = ImagePatches(image, patch_size=32, stride=24, downsample=2.0)
    path = folder / "new" / "pyramid_patches.h5"
    found = tissue_patches(patches)
    save_tissue(path, found)
    return path, found


def test_saved_tissue_can_be_loaded(tmp_path: Path) -> None:
    path, found = stored(tmp_path)
    again = load_tissue(path, found.patches.image)
    assert again.kept.tolist() == found.kept.tolist()
    for field in ("settings", "threshold", "fluorescent", "reason"):
        assert getattr(again, field) == getattr(found, field)
    assert again.patches.grid == found.patches.grid
    assert again.patches.downsample == 2.0
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # nothing half-made


def test_other_tools_can_read_the_file(tmp_path: Path) -> None:
    path, found = stored(tmp_path)
    with h5py.File(path) as file:
        coords, attributes = file["coords"][:], dict(file["coords"].attrs)
    assert coords.dtype == np.int64
    assert coords.tolist() == found.patches.coords[found.kept].tolist()
    expected = {
        "name": "pyramid",
        "patch_size": 32,
        "patch_size_level0": 64,
        "patch_level": 1,
        "overlap": 8,
        "level0_width": 400,
        "level0_height": 330,
        "level0_magnification": 40,
        "target_magnification": 20,
    }
    assert {key: attributes[key] for key in expected} == expected


def test_a_slide_without_tissue_is_stored_too(tmp_path: Path) -> None:
    image = Pyramid([noise(244, 2)])
    save_tissue(tmp_path / "a.h5", tissue_patches(ImagePatches(image, patch_size=32)))
    again = load_tissue(tmp_path / "a.h5", image)
    assert len(again.kept) == 0
    assert again.threshold is None
    assert "nothing stands out" in str(again.reason)


def test_a_file_of_another_slide_is_an_error(tmp_path: Path) -> None:
    path, found = stored(tmp_path)
    image = found.patches.image
    with pytest.raises(PatchError, match="of a slide of 400 x 330 px"):
        load_tissue(path, Pyramid([noise(240, 1)]))
    with pytest.raises(PatchError, match="does not exist"):
        load_tissue(tmp_path / "none.h5", image)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(PatchError, match="cannot be read as a tissue file"):
        load_tissue(path, image)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["coords"] = np.zeros((1, 2))
    with pytest.raises(PatchError, match="not written by ips"):
        load_tissue(tmp_path / "other.h5", image)


@pytest.mark.parametrize(
    ("array", "key", "value", "message"),
    [
        ("coords", "patch_size", [32, 32], "its attribute patch_size is"),
        ("coords", "patch_downsample", np.inf, "its attribute patch_downsample is inf"),
        ("coords", "stride", None, "it has no attribute stride"),
        ("coords", "edge", "cut", "its grid is incomplete"),
        ("indices", "level", "zero", "its attribute level is"),
        ("indices", "reason", 3, "its attribute reason is 3"),
    ],
)
def test_damaged_attributes_are_an_error(
    tmp_path: Path, array: str, key: str, value: object, message: str
) -> None:
    path, found = stored(tmp_path)
    with h5py.File(path, "a") as file:
        file[array].attrs[key] = 0
        del file[array].attrs[key]
        if value is not None:
            file[array].attrs[key] = value
    with pytest.raises(PatchError, match=message):
        load_tissue(path, found.patches.image)


def test_patches_of_another_grid_are_an_error(tmp_path: Path) -> None:
    path, found = stored(tmp_path)
    for wrong in (10**9, -1):
        with h5py.File(path, "a") as file:
            file["indices"][-1] = wrong
        with pytest.raises(PatchError, match="its patches are not those of"):
            load_tissue(path, found.patches.image)
