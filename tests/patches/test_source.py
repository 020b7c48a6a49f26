"""Conformance of every source, and tests of the one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.data.synthetic.scene import ScenePatches
from ips.errors import PatchError
from ips.images import open_image
from ips.patches import Grid, MemoryPatches, PatchSource, PatchSubset, sampled
from ips.patches.image import ImagePatches
from tests.images.picture_files import HEIGHT, LOSSLESS, WIDTH
from tests.patches.conformance import PatchSourceConformance
from tests.patches.feature_files import LAYOUTS, open_layout

PIXELS = torch.randint(256, (9, 3, 8, 8), dtype=torch.uint8)
FEATURES = torch.randn(9, 5)
IMAGE = np.random.default_rng(0).integers(256, size=(HEIGHT, WIDTH, 3), dtype=np.uint8)


def cut(image: np.ndarray, size: int, stride: int) -> Tensor:
    """Patch after patch, row by row."""
    height, width, _ = image.shape
    return torch.stack(
        [
            torch.from_numpy(image[y : y + size, x : x + size].copy()).permute(2, 0, 1)
            for y in range(0, height - size + 1, stride)
            for x in range(0, width - size + 1, stride)
        ]
    )


class TestPixelsInMemory(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return MemoryPatches(PIXELS.clone())

    @pytest.fixture
    def expected(self) -> Tensor:
        return PIXELS


class TestFeaturesInMemory(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return MemoryPatches(FEATURES.clone())

    @pytest.fixture
    def expected(self) -> Tensor:
        return FEATURES


class TestSubset(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return PatchSubset(MemoryPatches(PIXELS.clone()), np.array([7, 0, 3, 4]))

    @pytest.fixture
    def expected(self) -> Tensor:
        return PIXELS[[7, 0, 3, 4]]

    def test_coordinates_are_those_of_the_image(self, source: PatchSource) -> None:
        assert source.coords[:, 0].tolist() == [56, 0, 24, 32]


def test_a_sample_is_reproducible_and_depends_on_the_seed() -> None:
    whole = MemoryPatches(torch.arange(1000).view(-1, 1).float())
    first, again, other = (sampled(whole, 50, seed=seed) for seed in (1, 1, 2))
    assert len(first) == 50
    numbers = first.read(range(50)).flatten()
    assert len(numbers.unique()) == 50
    assert torch.equal(numbers, again.read(range(50)).flatten())
    assert not torch.equal(numbers, other.read(range(50)).flatten())
    assert sampled(whole, 1000, seed=1) is sampled(whole, None, seed=1) is whole


class TestImage(PatchSourceConformance):
    @pytest.fixture(params=list(LOSSLESS))
    def source(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PatchSource]:
        image = LOSSLESS[request.param](tmp_path, IMAGE)
        with ImagePatches(image, patch_size=40, stride=30) as source:
            yield source

    @pytest.fixture
    def expected(self) -> Tensor:
        return cut(IMAGE, 40, 30)


class TestFeatureFile(PatchSourceConformance):
    @pytest.fixture(params=list(LAYOUTS))
    def layout(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def source(self, layout: str, tmp_path: Path) -> Iterator[PatchSource]:
        write, *_ = LAYOUTS[layout]
        write(tmp_path / f"{layout}.h5")
        with open_layout(tmp_path, layout) as source:
            yield source

    @pytest.fixture
    def expected(self, layout: str) -> Tensor:
        _, _, _, features, *_ = LAYOUTS[layout]
        return torch.from_numpy(features)


class TestScene(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return scene()

    @pytest.fixture
    def expected(self) -> Tensor:
        return cut(scene().dense()[..., None], 20, 15)


def scene() -> ScenePatches:
    random = np.random.default_rng(0)
    return ScenePatches(
        random.integers(1, 256, size=(12, 28, 28), dtype=np.uint8),
        places=random.integers([90 - 27, 80 - 27], size=(12, 2)),
        grid=Grid(90, 80, patch=20, stride=15),
        name="scene",
    )


def test_given_coordinates_and_extent_are_kept() -> None:
    coords = np.arange(18).reshape(9, 2)
    source = MemoryPatches(PIXELS, coords=coords, extent=32, name="slide 7")
    assert source.coords.tolist() == coords.tolist()
    assert (source.extent, source.name) == (32, "slide 7")


def test_without_coordinates_patches_form_one_row() -> None:
    assert MemoryPatches(PIXELS).coords[:3].tolist() == [[0, 0], [8, 0], [16, 0]]
    assert MemoryPatches(PIXELS).extent == 8
    assert MemoryPatches(FEATURES).coords[:3].tolist() == [[0, 0], [1, 0], [2, 0]]
    assert MemoryPatches(FEATURES).extent is None


def test_neither_patches_nor_features_is_an_error() -> None:
    with pytest.raises(PatchError, match=r"\(9, 3, 8\)"):
        MemoryPatches(PIXELS[..., 0])


def test_too_few_coordinates_are_an_error() -> None:
    with pytest.raises(PatchError, match="9 patches but 2 coordinates"):
        MemoryPatches(PIXELS, coords=np.zeros((2, 2), dtype=np.int64))


def test_a_part_of_an_image_has_the_geometry_of_the_file() -> None:
    image = open_image(IMAGE)
    image.bounds, image.mpp = (13, 7, 90, 60), (0.5, 0.4)
    source = ImagePatches(image, patch_size=10, stride=5, downsample=2.0)
    for part in (source.parts[0], PatchSubset(source, np.array([3, 5])).parts[0]):
        assert (part.area, part.size, part.mpp) == ((13, 7, 90, 60), (WIDTH, HEIGHT), (0.5, 0.4))
        assert (part.step, part.extent) == (10, 20)


def test_a_part_of_unknown_patch_size_uses_the_distance_of_patches() -> None:
    coords = np.array([[0, 0], [256, 0], [512, 0], [0, 300]])
    (part,) = MemoryPatches(FEATURES[:4], coords=coords).parts
    assert (part.extent, part.patch_side, part.step) == (None, 256, 256)
    assert (part.area, part.size) == ((0, 0, 768, 556), None)
    (alone,) = MemoryPatches(FEATURES[:1]).parts
    assert (alone.patch_side, alone.step) == (1, 1)
