"""Several images, or one at several magnifications, as one bag."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ips import open_patches
from ips.errors import ImageError, PatchError
from ips.images import open_image
from ips.patches import Indices, JoinedPatches, MemoryPatches, PatchSource, PatchSubset, sampled
from ips.patches.image import ImagePatches
from ips.patches.view import View, ViewedPatches
from tests.patches.conformance import PatchSourceConformance

FEATURES = [torch.randn(n, 5) for n in (4, 1, 6)]
RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(256, size=(40 + 8 * i, 64, 3), dtype=np.uint8) for i in range(3)]


def image_patches(number: int, *, downsample: float = 1.0) -> ImagePatches:
    source = ImagePatches(open_image(IMAGES[number]), patch_size=8, downsample=downsample)
    source.name = f"{number}.png"
    return source


def all_of(source: PatchSource) -> Tensor:
    return source.read(range(len(source)))


class TestImages(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return JoinedPatches([image_patches(i) for i in range(3)], name="p1")

    @pytest.fixture
    def expected(self) -> Tensor:
        return torch.cat([all_of(image_patches(i)) for i in range(3)])

    def test_parts_are_the_images(self, source: PatchSource) -> None:
        assert [part.title for part in source.parts] == ["0.png", "1.png", "2.png"]
        assert [part.image for part in source.parts] == [0, 1, 2]
        assert source.extent == 8

    def test_coordinates_begin_anew_in_each_image(self, source: PatchSource) -> None:
        for number, part in enumerate(source.parts):
            assert np.array_equal(source.coords[part.patches], image_patches(number).coords)


class TestMagnifications(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        fine, coarse = image_patches(0), image_patches(0, downsample=4)
        return JoinedPatches([fine, coarse], name="0.png", magnifications=[20, 5])

    @pytest.fixture
    def expected(self) -> Tensor:
        return torch.cat([all_of(image_patches(0, downsample=d)) for d in (1, 4)])

    def test_parts_are_the_magnifications(self, source: PatchSource) -> None:
        assert [part.title for part in source.parts] == ["0.png at 20x", "0.png at 5x"]
        assert [part.image for part in source.parts] == [0, 0]
        assert [part.extent for part in source.parts] == [8, 32]
        assert source.extent is None  # there are two


class TestScales(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return open_patches(IMAGES[0], patch_size=8, stride=6, edge="fit", scale=[1, 0.5])

    @pytest.fixture
    def expected(self) -> Tensor:
        ways = (1, 0.5)
        return torch.cat(
            [
                all_of(open_patches(IMAGES[0], patch_size=8, stride=6, edge="fit", scale=way))
                for way in ways
            ]
        )

    def test_parts_are_the_scales(self, source: PatchSource) -> None:
        assert [part.title for part in source.parts] == [
            "array in memory at 1x",
            "array in memory at 0.5x",
        ]
        assert [part.extent for part in source.parts] == [8, 16]

    def test_one_scale_is_a_single_part(self) -> None:
        source = open_patches(IMAGES[0], patch_size=8, scale=[0.5])
        assert isinstance(source, ImagePatches)
        assert source.extent == 16

    @pytest.mark.parametrize("other", [20, [20, 5]])
    def test_a_magnification_as_well_is_refused(self, other: float | list[float]) -> None:
        with pytest.raises(ImageError, match="give one of them"):
            open_patches(IMAGES[0], patch_size=8, scale=[1, 0.5], magnification=other)


class TestFeatures(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        bags = [MemoryPatches(rows.clone(), name=f"{i}.h5") for i, rows in enumerate(FEATURES)]
        return JoinedPatches(bags, name="p1")

    @pytest.fixture
    def expected(self) -> Tensor:
        return torch.cat(FEATURES)


class TestNested(PatchSourceConformance):
    @pytest.fixture
    def source(self) -> PatchSource:
        return joined_patient()

    @pytest.fixture
    def expected(self) -> Tensor:
        rows = [image_patches(i, downsample=d) for i in range(2) for d in (1, 2)]
        return torch.cat([all_of(source) for source in rows])

    def test_images_are_numbered_over_their_magnifications(self, source: PatchSource) -> None:
        assert [part.image for part in source.parts] == [0, 0, 1, 1]
        assert [part.magnification for part in source.parts] == [20, 10, 20, 10]


class TestSubsetOfSeveralParts(PatchSourceConformance):
    """The second source has no patch left."""

    KEPT = np.array([3, 0, 8, 5])

    @pytest.fixture
    def source(self) -> PatchSource:
        bags = [MemoryPatches(rows.clone(), name=f"{i}.h5") for i, rows in enumerate(FEATURES)]
        return PatchSubset(JoinedPatches(bags, name="p1"), self.KEPT)

    @pytest.fixture
    def expected(self) -> Tensor:
        return torch.cat(FEATURES)[self.KEPT]

    def test_parts_without_patches_are_left_out(self, source: PatchSource) -> None:
        assert [part.name for part in source.parts] == ["0.h5", "2.h5"]
        assert [part.image for part in source.parts] == [0, 2]


def joined_patient() -> JoinedPatches:
    images = [
        JoinedPatches(
            [image_patches(i), image_patches(i, downsample=2)],
            name=f"{i}.png",
            magnifications=[20, 10],
        )
        for i in range(2)
    ]
    return JoinedPatches(images, name="p1")


def test_a_subset_that_mixes_parts_is_refused() -> None:
    bags = [MemoryPatches(rows, name=f"{i}.h5") for i, rows in enumerate(FEATURES)]
    with pytest.raises(PatchError, match="p1: the patches of its parts are mixed"):
        _ = PatchSubset(JoinedPatches(bags, name="p1"), np.array([0, 9, 1])).parts


def test_patches_of_different_shapes_are_refused_with_the_names() -> None:
    grey = MemoryPatches(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), name="grey.png")
    with pytest.raises(PatchError, match=r"p1: patches of 0\.png .* and those of grey\.png"):
        JoinedPatches([image_patches(0), grey], name="p1")


def test_a_bag_without_images_is_refused() -> None:
    with pytest.raises(PatchError, match="p1: has no images"):
        JoinedPatches([], name="p1")


def test_precisions_are_promoted() -> None:
    half = MemoryPatches(torch.ones(2, 3, dtype=torch.float16), name="half.h5")
    full = MemoryPatches(torch.full((2, 3), 1 / 3), name="full.h5")
    for bags in ([half, full], [full, half]):
        found = all_of(JoinedPatches(bags, name="p1"))
        assert found.dtype == torch.float32
        assert torch.equal(found.unique(), torch.tensor([1 / 3, 1]))


def test_at_most_so_many_patches_of_each_image_are_sampled() -> None:
    bags = [MemoryPatches(rows, name=f"{i}.h5") for i, rows in enumerate(FEATURES)]
    joined = sampled(JoinedPatches(bags, name="p1"), 3, seed=5)
    assert [len(source) for source in joined.by_part()] == [3, 1, 3]
    alone = [all_of(sampled(bag, 3, seed=5)) for bag in bags]
    assert torch.equal(all_of(joined), torch.cat(alone))


def test_a_shift_moves_every_image() -> None:
    joined = JoinedPatches([image_patches(i) for i in range(2)], name="p1")
    viewed = ViewedPatches(joined, View(mirrored=True, shift=(0.5, 0)))
    expected = [all_of(image_patches(i).shifted((0.5, 0))).flip(3) for i in range(2)]
    assert torch.equal(all_of(viewed), torch.cat(expected))
    assert [part.title for part in viewed.parts] == ["0.png", "1.png"]


def test_only_the_images_that_are_needed_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    original = ImagePatches.read

    def noted(self: ImagePatches, indices: Indices) -> Tensor:
        read.append(self.name)
        return original(self, indices)

    monkeypatch.setattr(ImagePatches, "read", noted)
    joined = JoinedPatches([image_patches(i) for i in range(3)], name="p1")
    assert len(joined.parts) == 3
    assert joined.coords.shape == (len(joined), 2)
    assert not read
    joined.read([len(joined) - 1])
    assert read == ["2.png"]


def test_damage_is_reported_by_the_name_of_the_image() -> None:
    empty = MemoryPatches(torch.zeros(0, 5), name="empty.h5")
    bags = [MemoryPatches(FEATURES[0], name="good.h5"), empty]
    with pytest.raises(PatchError, match=r"empty\.h5: has no patches"):
        JoinedPatches(bags, name="p1").check()


def test_numbers_of_patches_do_not_depend_on_those_left_out_of_earlier_images() -> None:
    first, second = (MemoryPatches(torch.zeros(4, 1, 40, 40, dtype=torch.uint8)) for _ in range(2))
    whole = JoinedPatches([first, second], name="both")
    fewer = JoinedPatches([PatchSubset(first, np.array([1, 3])), second], name="both")
    assert fewer.numbers.tolist() == whole.numbers[[1, 3, 4, 5, 6, 7]].tolist()
    assert (np.diff(whole.numbers) > 0).all()
    assert whole.coarse(32).read([0, 5]).shape == (2, 1, 32, 32)
