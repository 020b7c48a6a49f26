"""Patches at stored coordinates, ours and those of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile

from ips.errors import ImageError, PatchError
from ips.images import open_image
from ips.patches.coords_file import NoTissueError
from ips.patches.image import ImagePatches
from ips.patches.tissue import tissue_patches
from ips.patches.tissue_file import save_tissue
from ips.slides.coords import Resolution, slide_patches

SIDE = 512
PIXELS = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
CORNERS = np.array([[3, 7], [130, 64], [448, 448], [64, 128]])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("slide") / "s.tif"
    with tifffile.TiffWriter(path) as file:
        settings: Any = {"photometric": "rgb", "tile": (128, 128)}
        file.write(PIXELS, subifds=1, **settings)
        file.write(PIXELS[::2, ::2], subfiletype=1, **settings)
    return path


def store(file: Path, coords: Any, **attributes: Any) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(file, "w") as stored:
        stored["coords"] = coords
        stored["coords"].attrs.update(attributes)
    return file


CLAM = {"patch_size": 64, "patch_level": 0, "downsample": [1.0, 1.0], "name": "s"}
TRIDENT = {"patch_size": 64, "patch_size_level0": 64, "overlap": 0, "target_magnification": 40}


@pytest.mark.parametrize(
    ("file", "attributes"),
    [
        ("s.h5", CLAM),
        ("patches/s.h5", CLAM),
        ("s_patches.h5", TRIDENT),
        ("patches/s_patches.h5", TRIDENT),
    ],
)
def test_reads_the_files_of_clam_and_trident(
    path: Path, tmp_path: Path, file: str, attributes: dict[str, Any]
) -> None:
    store(tmp_path / file, CORNERS, **attributes)
    patches = slide_patches(path, resolution=Resolution(), coords=tmp_path)
    assert len(patches) == 4
    assert patches.extent == 64
    np.testing.assert_array_equal(patches.coords, CORNERS)  # also where no grid of ours has them
    for number, (x, y) in enumerate(CORNERS):
        expected = PIXELS[y : y + 64, x : x + 64].transpose(2, 0, 1)
        np.testing.assert_array_equal(patches.read([number])[0].numpy(), expected)


@pytest.mark.parametrize(
    "attributes",
    [{"patch_size": 32, "patch_level": 1}, {"patch_size": 32, "patch_size_level0": 64}],
)
def test_uses_the_stored_resolution(path: Path, tmp_path: Path, attributes: dict[str, Any]) -> None:
    store(tmp_path / "s.h5", CORNERS[1:], **attributes)
    patches = slide_patches(path, resolution=Resolution(), coords=tmp_path)
    assert (patches.shape, patches.extent) == ((3, 32, 32), 64)
    expected = PIXELS[::2, ::2][32:64, 65:97].transpose(2, 0, 1)
    np.testing.assert_array_equal(patches.read([0])[0].numpy(), expected)


def test_uses_the_requested_resolution_if_none_is_stored(path: Path, tmp_path: Path) -> None:
    store(tmp_path / "s.h5", CORNERS.astype(np.float32))
    patches = slide_patches(path, resolution=Resolution(32, level=1), coords=tmp_path)
    assert (len(patches), patches.shape, patches.extent) == (4, (3, 32, 32), 64)
    assert slide_patches(path, resolution=Resolution(), coords=tmp_path).extent == 256
    assert len(slide_patches(path, resolution=Resolution())) == 4


def test_reads_our_own_tissue_files(tmp_path: Path) -> None:
    pixels = np.full((SIDE, SIDE, 3), 240, np.uint8)
    pixels[100:300, 200:400] = 120
    tifffile.imwrite(tmp_path / "s.tif", pixels, photometric="rgb", tile=(128, 128))
    image = open_image(tmp_path / "s.tif")
    found = tissue_patches(ImagePatches(image, patch_size=64))
    save_tissue(tmp_path / "tissue/patches/s_patches.h5", found)
    patches = slide_patches(tmp_path / "s.tif", resolution=Resolution(), coords=tmp_path / "tissue")
    assert 0 < len(patches) < 64
    np.testing.assert_array_equal(patches.coords, found.source.coords)
    every = range(len(patches))
    np.testing.assert_array_equal(patches.read(every).numpy(), found.source.read(every).numpy())
    assert patches.read([]).shape == (0, 3, 64, 64)


def test_a_slide_without_tissue_gives_the_reason(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "s.tif", np.full((128, 128), 240, np.uint8))
    found = tissue_patches(ImagePatches(open_image(tmp_path / "s.tif"), patch_size=64))
    save_tissue(tmp_path / "s.h5", found)
    with pytest.raises(NoTissueError, match=r"s\.tif: no tissue: all of it has the same grey"):
        slide_patches(tmp_path / "s.tif", resolution=Resolution(), coords=tmp_path)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (Resolution(128), "64 px at 1 level-0 pixels per pixel, but 128 px at 1 were requested"),
        (Resolution(64, level=1), "but 64 px at 2 were requested"),
        (Resolution(level=1), "but 64 px at 2 were requested"),
    ],
)
def test_the_requested_resolution_must_match_the_stored_one(
    path: Path, tmp_path: Path, requested: Resolution, message: str
) -> None:
    store(tmp_path / "s.h5", CORNERS, **TRIDENT)
    with pytest.raises(PatchError, match=rf"s\.h5: coordinates of patches of .*{message}"):
        slide_patches(path, resolution=requested, coords=tmp_path)
    same = Resolution(64, level=0)
    assert len(slide_patches(path, resolution=same, coords=tmp_path)) == 4


def test_wrong_coordinate_files_are_refused(path: Path, tmp_path: Path) -> None:
    def open_slide() -> None:
        slide_patches(path, resolution=Resolution(), coords=tmp_path)

    with pytest.raises(PatchError, match=r"no s\.h5 with the coordinates of this slide"):
        open_slide()
    (tmp_path / "s.h5").write_text("no HDF5")
    with pytest.raises(PatchError, match=r"s\.h5: cannot be read as a coordinate file"):
        open_slide()
    store(tmp_path / "s.h5", np.arange(6))
    with pytest.raises(PatchError, match=r"coords is \(6,\), expected \(n, 2\)"):
        open_slide()
    for wrong in ([[0, 512]], [[-1, 0]]):
        store(tmp_path / "s.h5", wrong, **CLAM)
        with pytest.raises(PatchError, match=r"outside s\.tif, which has 512 x 512 px"):
            open_slide()
    store(tmp_path / "s.h5", CORNERS, **TRIDENT, level0_width=512, level0_height=600)
    with pytest.raises(
        PatchError, match=r"s\.h5: coordinates of a slide of 512 x 600 px, but .*512 x 512"
    ):
        open_slide()
    store(tmp_path / "s.h5", CORNERS, **TRIDENT, level0_width=512, level0_height=512)
    open_slide()
    with pytest.raises(ImageError, match="does not exist"):
        slide_patches(tmp_path / "none.tif", resolution=Resolution())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_coordinates_that_are_not_finite_are_refused(
    path: Path, tmp_path: Path, value: float
) -> None:
    store(tmp_path / "s.h5", np.array([[0, 0], [value, 64]]), **CLAM)
    with pytest.raises(PatchError, match=r"s\.h5: /coords contains .* not a coordinate"):
        slide_patches(path, resolution=Resolution(), coords=tmp_path)


@pytest.mark.parametrize("value", [[64, 64], "64 px", b"\xff", np.nan, -3])
@pytest.mark.parametrize("key", ["patch_size", "patch_size_level0", "level0_width"])
def test_attributes_of_the_wrong_kind_are_refused(
    path: Path, tmp_path: Path, key: str, value: Any
) -> None:
    store(tmp_path / "s.h5", CORNERS, **(TRIDENT | {key: value}))
    with pytest.raises(PatchError, match=rf"s\.h5: its attribute {key} is .*positive number"):
        slide_patches(path, resolution=Resolution(), coords=tmp_path)


def test_links_to_other_files_are_refused(path: Path, tmp_path: Path) -> None:
    store(tmp_path / "other.h5", CORNERS)
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["coords"] = h5py.ExternalLink("other.h5", "/coords")
    with pytest.raises(PatchError, match=r"s\.h5: coords is a link to other\.h5"):
        slide_patches(path, resolution=Resolution(), coords=tmp_path)


@pytest.mark.parametrize("size", [0.25, 10**9])
def test_patches_of_no_size_are_refused(path: Path, tmp_path: Path, size: float) -> None:
    store(tmp_path / "s.h5", CORNERS, **(TRIDENT | {"patch_size": size}))
    with pytest.raises(PatchError, match=r"s\.h5: its patches would have .* px"):
        slide_patches(path, resolution=Resolution(), coords=tmp_path)
