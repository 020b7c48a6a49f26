"""Features in front of their slide, against the patches of the slide itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch import Tensor

from ips.errors import PatchError
from ips.patches import (
    ImagePatches,
    PatchSource,
    SlideFinder,
    has_pixels,
    open_features,
    read_crops,
    sampled,
)
from tests.patches.bounded_slide import (
    MPP,
    features_of,
    give_bounds,
    patches_of,
    write_features,
    write_slide,
)
from tests.patches.conformance import PatchSourceConformance


@pytest.fixture(autouse=True)
def _bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    give_bounds(monkeypatch)


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    return write_slide(tmp_path / "slides" / "a.tif")


@pytest.fixture
def patches(slide: Path) -> ImagePatches:
    return patches_of(slide)


@pytest.fixture
def bag(tmp_path: Path, slide: Path, patches: ImagePatches) -> Path:
    return write_features(tmp_path / "bag.h5", patches, slide=slide)


@pytest.fixture
def clam(tmp_path: Path, patches: ImagePatches) -> Path:
    """A file that says neither its slide nor how large a patch is."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"], file["coords"] = features_of(patches).numpy(), patches.coords
    return tmp_path / "a.h5"


class TestConformance(PatchSourceConformance):
    @pytest.fixture
    def source(self, bag: Path) -> PatchSource:
        return open_features(bag).on_slide(SlideFinder())

    @pytest.fixture
    def expected(self, patches: ImagePatches) -> Tensor:
        return features_of(patches)


def test_the_geometry_is_that_of_the_patches_of_the_slide(bag: Path, patches: ImagePatches) -> None:
    (part,) = open_features(bag).on_slide(SlideFinder()).parts
    (expected,) = patches.parts
    for name in ("patches", "area", "size", "step", "extent", "mpp", "patch_side"):
        assert getattr(part, name) == getattr(expected, name), name
    ours, theirs = part.thumbnail(100), expected.thumbnail(100)
    assert (ours.scale, ours.offset) == (theirs.scale, theirs.offset)
    np.testing.assert_array_equal(ours.pixels, theirs.pixels)


def test_crops_are_the_pixels_at_the_coordinates(bag: Path, patches: ImagePatches) -> None:
    source = open_features(bag).on_slide(SlideFinder())
    assert has_pixels(source)
    crops = read_crops(source, [7, 0, len(source) - 1])
    for crop, i in zip(crops, [7, 0, -1], strict=True):
        expected = patches.image.read_region(tuple(patches.coords[i]), 0, (40, 40))
        np.testing.assert_array_equal(crop, expected.transpose(2, 0, 1))
    assert len(read_crops(source, [])) == 0


def test_a_sample_of_features_has_the_slide_too(bag: Path, patches: ImagePatches) -> None:
    sample = sampled(open_features(bag), 5, seed=0)
    assert not has_pixels(sample)
    shown = sample.on_slide(SlideFinder())
    np.testing.assert_array_equal(shown.coords, sample.coords)
    x, y = shown.coords[3]
    expected = patches.image.read_region((x, y), 0, (40, 40)).transpose(2, 0, 1)
    np.testing.assert_array_equal(read_crops(shown, [3])[0], expected)


def test_patches_of_an_image_have_their_own_pixels(patches: ImagePatches) -> None:
    assert patches.on_slide(SlideFinder()) is patches
    np.testing.assert_array_equal(read_crops(patches, [3]), patches.read([3]).numpy())


def test_without_a_slide_there_are_no_crops(clam: Path) -> None:
    source = open_features(clam).on_slide(SlideFinder(patch_size=40))
    assert source.extent == 40
    assert not has_pixels(source)
    with pytest.raises(PatchError, match="holds features"):
        read_crops(source, [0])


class TestPatchSize:
    def test_of_the_file(self, bag: Path, slide: Path) -> None:
        right = SlideFinder(patch_size=20, level=1)
        assert open_features(bag).on_slide(right).extent == 40
        with pytest.raises(PatchError, match=r"side of 40 px .* --patch-size 20: leave out"):
            open_features(bag).on_slide(SlideFinder(patch_size=20))

    @pytest.mark.parametrize(
        ("options", "extent"),
        [
            ({"patch_size": 40}, 40),
            ({"patch_size": 20, "level": 1}, 40),
            ({"patch_size": 20, "mpp": 2 * MPP}, 40),
            ({}, None),
        ],
    )
    def test_of_a_file_that_does_not_say(
        self, clam: Path, slide: Path, options: dict[str, Any], extent: int | None
    ) -> None:
        source = open_features(clam).on_slide(SlideFinder(slide.parent, **options))
        assert source.extent == extent
        assert has_pixels(source) == (extent is not None)
        assert source.parts[0].size == (240, 160)

    def test_relative_to_a_slide_that_is_not_there(self, clam: Path) -> None:
        with pytest.raises(PatchError, match=r"a.h5: --level 1 needs its slide"):
            open_features(clam).on_slide(SlideFinder(patch_size=20, level=1))
        with pytest.raises(PatchError, match=r"a.h5: --mpp 0.5 needs the resolution"):
            open_features(clam).on_slide(SlideFinder(patch_size=20, mpp=0.5))
        known = open_features(clam, mpp=MPP).on_slide(SlideFinder(patch_size=20, mpp=0.5))
        assert known.extent == 40

    def test_coordinates_in_micrometres_get_the_resolution_of_the_slide(
        self, tmp_path: Path, slide: Path, patches: ImagePatches
    ) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["feats"], file["coords"] = features_of(patches).numpy(), patches.coords * MPP
            file.attrs.update(unit="um", tile_size_um=40 * MPP)
        source = open_features(tmp_path / "a.h5").on_slide(SlideFinder(slide.parent))
        assert source.extent == 40
        np.testing.assert_array_equal(source.coords, patches.coords)


class TestAnotherSlide:
    def test_of_another_size(self, tmp_path: Path, slide: Path, patches: ImagePatches) -> None:
        path = write_features(tmp_path / "b.h5", patches, slide=slide, size=(1000, 1000))
        with pytest.raises(PatchError, match="belongs to another slide of this name"):
            open_features(path).on_slide(SlideFinder())

    def test_with_patches_outside(self, clam: Path, slide: Path) -> None:
        with h5py.File(clam, "a") as file:
            file["coords"][0] = 240, 0
        with pytest.raises(PatchError, match=r"a.tif has only 240 x 160 px: that is another slide"):
            open_features(clam).on_slide(SlideFinder(slide.parent))


def test_numbered_patches_are_nowhere(tmp_path: Path, slide: Path) -> None:
    with h5py.File(tmp_path / "many.h5", "w") as file:
        file["a/img"], file["a/pos"] = np.zeros((3, 8), np.float32), np.arange(3)
    source = open_features(tmp_path / "many.h5::a")
    assert source.on_slide(SlideFinder(patch_size=256)).extent is None
    with pytest.raises(PatchError, match=r"many.h5::a: .* cannot be shown on a slide"):
        source.on_slide(SlideFinder(slide.parent))
