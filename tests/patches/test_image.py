"""Patches of an image file against a naive crop."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch
from PIL import Image as PILImage

from ips.errors import ImageError, PatchError
from ips.images import TiffImage, open_image
from ips.images.tile_cache import TileCache
from ips.patches.image import ImagePatches
from ips.patches.opening import open_patches
from ips.patches.source import PatchSource

Pixels = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 172, 120
KINDS = ["array", "npy", "png", "tiled", "stripped", "slide"]


@pytest.fixture(scope="module")
def picture() -> Pixels:
    return np.random.default_rng(3).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


def small(pixels: Pixels) -> Pixels:
    return np.ascontiguousarray(pixels[::2, ::2])


def write(folder: Path, pixels: Pixels, kind: str) -> Any:
    """The picture as an array or a file; TIFFs are at 0.5 µm per pixel with a level of half."""
    if kind == "array":
        return pixels
    path = folder / f"a.{kind}"
    if kind == "npy":
        np.save(path, pixels)
    elif kind == "png":
        PILImage.fromarray(pixels).save(path)
    elif kind == "stripped":
        tifffile.imwrite(path, pixels, photometric="rgb", rowsperstrip=10, compression="lzw")
    else:
        options: dict[str, Any] = {"photometric": "rgb", "tile": (32, 32), "compression": "deflate"}
        options |= {"resolution": (20_000, 20_000), "resolutionunit": "centimeter"}
        if kind == "slide":
            about = "Aperio Image Library v10.0.0\n172x120 (32x32)|AppMag = 20|MPP = 0.5"
            options |= {"description": about, "metadata": None}
        with tifffile.TiffWriter(path) as file:
            file.write(pixels, **options)
            file.write(small(pixels), subfiletype=1, **options)
    return path


def naive(pixels: Pixels, x: int, y: int, side: int, background: int = 0) -> torch.Tensor:
    padded = np.full((HEIGHT + 200, WIDTH + 200, 3), background, np.uint8)
    padded[: pixels.shape[0], : pixels.shape[1]] = pixels
    return torch.from_numpy(padded[y : y + side, x : x + side].transpose(2, 0, 1).copy())


@pytest.mark.parametrize("kind", KINDS)
class TestEveryKind:
    @pytest.mark.parametrize(("side", "stride"), [(32, None), (40, 25), (30, 50), (120, 1), (1, 7)])
    @pytest.mark.parametrize("edge", ["drop", "pad", "fit"])
    def test_patches_are_naive_crops(
        self, tmp_path: Path, picture: Pixels, kind: str, side: int, stride: int | None, edge: Any
    ) -> None:
        source = write(tmp_path, picture, kind)
        patches = open_patches(source, patch_size=side, stride=stride, edge=edge)
        assert isinstance(patches, PatchSource)
        assert patches.extent == side
        assert patches.shape == (3, side, side)
        step = stride or side
        assert (patches.coords % step == 0).all() or edge == "fit"
        wanted = np.random.default_rng(0).permutation(len(patches))[:40]
        read = patches.read(wanted)
        assert read.dtype == torch.uint8
        assert read.is_contiguous()
        background = 255 if kind in ("tiled", "slide") else 0
        for i, patch in zip(wanted, read, strict=True):
            x, y = patches.coords[i]
            assert torch.equal(patch, naive(picture, x, y, side, background))

    def test_order_and_duplicates(self, tmp_path: Path, picture: Pixels, kind: str) -> None:
        patches = open_patches(write(tmp_path, picture, kind), patch_size=20)
        everything = patches.read(range(len(patches)))
        wanted = torch.tensor([7, 3, 3, 40, 0, 7])
        assert torch.equal(patches.read(wanted), everything[wanted])
        assert patches.read([]).shape == (0, 3, 20, 20)

    def test_no_such_patch(self, tmp_path: Path, picture: Pixels, kind: str) -> None:
        patches = open_patches(write(tmp_path, picture, kind), patch_size=60)
        with pytest.raises(PatchError, match="there is no patch 4, only 0 to 3"):
            patches.read([0, 4])

    def test_pickle_before_and_after_reading(
        self, tmp_path: Path, picture: Pixels, kind: str
    ) -> None:
        patches = open_patches(write(tmp_path, picture, kind), patch_size=30, stride=11)
        for _ in range(2):
            copy = pickle.loads(pickle.dumps(patches))
            assert torch.equal(copy.read([5, 1]), patches.read([5, 1]))

    def test_threads(self, tmp_path: Path, picture: Pixels, kind: str) -> None:
        patches = open_patches(write(tmp_path, picture, kind), patch_size=24, stride=9)
        everything = patches.read(range(len(patches)))

        def right(seed: int) -> bool:
            wanted = np.random.default_rng(seed).permutation(len(patches))[:10]
            return torch.equal(patches.read(wanted), everything[wanted])

        with patches, ThreadPoolExecutor(4) as pool:
            assert all(pool.map(right, range(20)))


@pytest.mark.parametrize("kind", ["tiled", "slide"])
@pytest.mark.parametrize("edge", ["drop", "pad", "fit"])
@pytest.mark.parametrize("asked", [{"level": 1}, {"mpp": 1.0}, {"mpp": 1.01}])
def test_level_and_its_mpp(
    tmp_path: Path, picture: Pixels, kind: str, edge: Any, asked: dict[str, Any]
) -> None:
    source = write(tmp_path, picture, kind)
    patches = open_patches(source, patch_size=20, stride=13, edge=edge, **asked)
    assert isinstance(patches, ImagePatches)
    assert patches.extent == 40
    np.testing.assert_array_equal(patches.coords, patches.grid.coords * 2)
    assert (patches.grid.width, patches.grid.height) == (WIDTH // 2, HEIGHT // 2)
    for patch, (x, y) in zip(patches.read(range(len(patches))), patches.grid.coords, strict=True):
        assert torch.equal(patch, naive(small(picture), x, y, 20, 255))


@pytest.mark.parametrize(
    ("asked", "downsample", "base"),
    [({"mpp": 0.8}, 1.6, 1), ({"mpp": 1.5}, 3, 2), ({"magnification": 5}, 4, 2)],
)
def test_resampled_patches(
    tmp_path: Path, picture: Pixels, asked: dict[str, Any], downsample: float, base: int
) -> None:
    patches = open_patches(write(tmp_path, picture, "slide"), patch_size=9, stride=7, **asked)
    assert isinstance(patches, ImagePatches)
    assert patches.extent == round(9 * downsample)
    assert (patches.grid.width, patches.grid.height) == (
        int(WIDTH / downsample),
        int(HEIGHT / downsample),
    )
    level = picture[::base, ::base]
    side = round(9 * downsample / base)
    for patch, corner, (x0, y0) in zip(
        patches.read(range(len(patches))), patches.grid.coords, patches.coords, strict=True
    ):
        assert (x0, y0) == tuple(round(float(c) * downsample) for c in corner)
        x, y = round(x0 / base), round(y0 / base)
        crop = PILImage.fromarray(level[y : y + side, x : x + side])
        expected = np.asarray(crop.resize((9, 9), PILImage.Resampling.BOX)).transpose(2, 0, 1)
        np.testing.assert_array_equal(patch.numpy(), expected)


def test_the_grid_covers_the_scanned_region(picture: Pixels) -> None:
    image = open_image(picture)
    image.bounds = (11, 23, 90, 65)
    patches = open_patches(image, patch_size=30)
    assert patches.coords.tolist() == [[x, y] for y in (23, 53) for x in (11, 41, 71)]
    assert torch.equal(patches.read([4])[0], naive(picture, 41, 53, 30))


def test_each_tile_is_decoded_once(
    tmp_path: Path, picture: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: list[Any] = []
    get = TileCache.get

    def spy(self: TileCache, key: Any, decode: Any) -> Pixels:
        def counted() -> Any:
            missed.append(key)
            return decode()

        return get(self, key, counted)

    monkeypatch.setattr(TileCache, "get", spy)
    patches = open_patches(write(tmp_path, picture, "tiled"), patch_size=16)
    patches.read([0])
    assert isinstance(patches, ImagePatches)
    assert isinstance(patches.image, TiffImage)
    cache = patches.image._handle.cache
    cache.limit = 32 * 32 * 3  # a single tile
    missed.clear()
    cache._tiles.clear()
    patches.read(np.random.default_rng(0).permutation(len(patches)))
    assert len(missed) == len(set(missed)) == 20


def test_grey(picture: Pixels) -> None:
    patches = open_patches(picture[..., 0], patch_size=50, stride=25)
    assert patches.shape == (1, 50, 50)
    np.testing.assert_array_equal(patches.read([1])[0, 0].numpy(), picture[:50, 25:75, 0])


def test_patch_larger_than_the_image(picture: Pixels) -> None:
    with pytest.raises(PatchError, match="array in memory: a patch of 256 px does not fit"):
        open_patches(picture)
    patches = open_patches(picture, patch_size=180, edge="pad")
    assert torch.equal(patches.read([0])[0], naive(picture, 0, 0, 180))
    assert patches.read([]).shape == (0, 3, 180, 180)


def test_downsample_of_an_array(picture: Pixels) -> None:
    patches = ImagePatches(open_image(picture), patch_size=10, downsample=2.0)
    crop = PILImage.fromarray(picture[20:40, :20]).resize((10, 10), PILImage.Resampling.BOX)
    wanted = patches.grid.shape[1]  # the first of the second row
    np.testing.assert_array_equal(patches.read([wanted])[0].permute(1, 2, 0).numpy(), crop)


@pytest.mark.parametrize("kind", ["png", "tif"])
def test_a_plain_image_at_half_its_size(tmp_path: Path, picture: Pixels, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "png":
        PILImage.fromarray(picture).save(path)
    else:
        tifffile.imwrite(path, picture, photometric="rgb", tile=(16, 16))
    patches = open_patches(path, patch_size=20, stride=10, scale=0.5)
    height, width = picture.shape[:2]
    assert (patches.coords % 20 == 0).all()  # full-resolution pixels
    assert patches.coords.max(axis=0).tolist() == [
        (side // 2 - 20) // 10 * 20 for side in (width, height)
    ]
    assert patches.extent == 40
    for index, patch in enumerate(patches.read(range(len(patches)))):
        x, y = patches.coords[index]
        crop = PILImage.fromarray(picture[y : y + 40, x : x + 40])
        expected = np.asarray(crop.resize((20, 20), PILImage.Resampling.BOX))
        np.testing.assert_array_equal(patch.permute(1, 2, 0).numpy(), expected)


def test_more_than_one_resolution(picture: Pixels) -> None:
    with pytest.raises(ImageError, match="give one of them"):
        open_patches(picture, patch_size=9, level=0, scale=0.5)
    with pytest.raises(ImageError, match="give one of them"):
        open_patches(picture, patch_size=9, level=0, mpp=0.5)
