"""Overviews against naive reductions, the geometry of boxes, and pictures of every kind of bag."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.data import ScenePatches
from ips.errors import PatchError
from ips.explain import Overview, draw_attention, overview
from ips.explain.attention import class_colours, relative
from ips.explain.overview import boxes, label_spots, patch_side
from ips.models import Prediction
from ips.patches import Grid, Indices, MemoryPatches, PatchSource, open_patches

Pixels = npt.NDArray[np.uint8]
MODULE = import_module("ips.explain.overview")  # the package has a function of that name


@pytest.fixture
def picture() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (120, 180, 3), dtype=np.uint8)


def averaged(pixels: Pixels, factor: int) -> npt.NDArray[np.float64]:
    """The mean of each square of ``factor`` pixels."""
    h, w, c = pixels.shape
    squares = pixels.reshape(h // factor, factor, w // factor, factor, c).astype(float)
    return np.asarray(squares.mean(axis=(1, 3)))


def scene(side: int = 240, things: int = 12) -> ScenePatches:
    rng = np.random.default_rng(1)
    cells = rng.integers(0, 256, (things, 28, 28), dtype=np.uint8)
    places = rng.integers(0, side - 28 + 1, (things, 2))
    return ScenePatches(cells, places=places, grid=Grid(side, side, patch=50, stride=50), name="s")


def predict(source: PatchSource, *, keep: int = 12, classes: int | None = None) -> Prediction:
    """A prediction as a model would make it, with made-up numbers."""
    generator = torch.Generator().manual_seed(0)
    indices = torch.randperm(len(source), generator=generator)[:keep]
    attention = torch.rand(len(indices), generator=generator).softmax(0).sort(descending=True)[0]
    scores = None if classes is None else torch.rand(len(indices), classes, generator=generator)
    return Prediction(
        name=source.name,
        logits={},
        probabilities={},
        indices=indices,
        coords=source.coords[indices.numpy()],
        extent=source.extent,
        attention=attention,
        task_attention={},
        patch_probabilities=scores,
        patches=len(source),
    )


class Counted(MemoryPatches):
    """Remembers how many patches were read at once."""

    most = 0

    def read(self, indices: Indices) -> Tensor:
        self.most = max(self.most, len(indices))
        return super().read(indices)


# The overview


@pytest.mark.parametrize("block", [16 * 2**20, 1000, 1], ids=["whole", "blocks", "pixels"])
@pytest.mark.parametrize("kind", ["array", "strips"])
def test_overview_of_an_image_is_its_average(
    tmp_path: Path, picture: Pixels, kind: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "BLOCK", block)
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, picture, photometric="rgb", rowsperstrip=7, compression="lzw")
    source = open_patches(picture if kind == "array" else path, patch_size=20)
    view = overview(source, side=45)
    assert view.scale == 0.25
    assert view.offset == (0, 0)
    np.testing.assert_allclose(view.pixels, averaged(picture, 4), atol=1)  # whole numbers


def test_overview_never_enlarges(picture: Pixels) -> None:
    view = overview(open_patches(picture, patch_size=20), side=800)
    np.testing.assert_array_equal(view.pixels, picture)
    assert view.scale == 1


def test_overview_reads_a_bounded_part_of_the_coarsest_level_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = np.full((1024, 2048, 3), 200, dtype=np.uint8)
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(big, photometric="rgb", tile=(64, 64), subifds=0)
        file.write(big[::4, ::4] - 100, photometric="rgb", tile=(64, 64), subfiletype=1)
    source = open_patches(path, patch_size=64)
    monkeypatch.setattr(MODULE, "BLOCK", 10_000)
    asked: list[tuple[int, int]] = []
    read_region = source.image.read_region

    def watched(location: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        asked.append((level, size[0] * size[1]))
        return read_region(location, level, size)

    monkeypatch.setattr(source.image, "read_region", watched)
    coarse = overview(source, side=256)
    assert coarse.pixels.shape == (128, 256, 3)
    assert (coarse.pixels == 100).all()
    assert {level for level, _ in asked} == {1}
    asked.clear()
    assert (overview(source, side=1024).pixels == 200).all()
    assert {level for level, _ in asked} == {0}
    assert max(area for _, area in asked) <= 10_000


def test_overview_starts_where_the_scanned_part_does(picture: Pixels) -> None:
    source = open_patches(picture, patch_size=20)
    header = source.image.header
    object.__setattr__(header, "bounds", (60, 40, 80, 40))
    view = overview(source, side=40)
    assert view.offset == (60, 40)
    np.testing.assert_allclose(view.pixels, averaged(picture[40:80, 60:140], 2), atol=1)


@pytest.mark.parametrize("block", [16 * 2**20, 700])
def test_overview_of_a_scene_is_that_of_its_dense_image(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "BLOCK", block)
    source = scene()
    view = overview(source, side=80)
    expected = averaged(source.dense()[..., None], 3)
    np.testing.assert_allclose(view.pixels, np.repeat(expected, 3, axis=2), atol=1)


def test_overview_of_patches_is_pasted_from_few_at_a_time(
    picture: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = open_patches(picture, patch_size=20)
    everything = grid.read(range(len(grid)))
    source = Counted(everything, coords=grid.coords + np.array([1000, 500]))
    monkeypatch.setattr(MODULE, "BLOCK", 16 * 5 * 1200)
    view = overview(source, side=45)
    assert view.offset == (1000, 500)
    np.testing.assert_allclose(view.pixels, averaged(picture, 4), atol=1)
    assert source.most == 5


def test_overview_of_overlapping_patches_is_their_mean() -> None:
    patches = torch.stack([torch.full((1, 4, 4), v, dtype=torch.uint8) for v in (100, 200)])
    view = overview(MemoryPatches(patches, coords=np.array([[0, 0], [2, 0]])))
    assert view.pixels[0, :, 0].tolist() == [100, 100, 150, 150, 200, 200]


def test_overview_of_features_shows_where_patches_are() -> None:
    coords = np.array([[0, 0], [256, 0], [256, 256]])
    source = MemoryPatches(torch.zeros(3, 8), coords=coords)
    assert patch_side(source) == 256
    view = overview(source, side=100)
    assert view.pixels.shape == (100, 100, 3)
    assert view.scale == pytest.approx(100 / 512)
    there, nothing = view.pixels[25, 25], view.pixels[75, 25]
    assert (there < nothing).all()


def test_overview_of_one_row_is_high_enough_to_see() -> None:
    source = MemoryPatches(torch.zeros(500, 8))
    view = overview(source, side=100)
    assert view.pixels.shape == (10, 100, 3)
    _, top, _, height = boxes(view, source.coords[:1], extent=1)[0].tolist()
    assert top + height / 2 == pytest.approx(5)


def test_overview_of_nothing_is_an_error() -> None:
    with pytest.raises(PatchError, match="no patch"):
        overview(MemoryPatches(torch.zeros(0, 8), name="empty.h5"))


# Boxes and numbers


def test_boxes_are_where_the_patches_are() -> None:
    view = Overview(np.zeros((50, 50, 3), np.uint8), scale=0.5, offset=(100, 200))
    found = boxes(view, np.array([[100, 200], [140, 260]]), extent=20)
    assert found.tolist() == [[0, 0, 10, 10], [20, 30, 10, 10]]


def test_small_boxes_grow_about_their_centre() -> None:
    view = Overview(np.zeros((50, 50, 3), np.uint8), scale=0.1, offset=(0, 0))
    found = boxes(view, np.array([[90, 190]]), extent=20, smallest=6)
    assert found.tolist() == [[7, 17, 6, 6]]


def test_box_frames_the_patch_on_the_picture() -> None:
    source = scene()
    view = overview(source, side=120)
    number = int(source.read(range(len(source))).float().mean(dim=(1, 2, 3)).argmax())
    corner = source.coords[number : number + 1]
    left, top, width, height = boxes(view, corner, extent=source.extent)[0].astype(int).tolist()
    cut = view.pixels[top : top + height, left : left + width, :1]
    patch = source.read([number])[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(cut, averaged(patch, 2), atol=1)


def test_numbers_stay_clear_of_each_other_and_inside() -> None:
    marks = np.array([[10.0 * x, 10.0 * y, 10, 10] for y in range(2) for x in range(3)])
    spots = label_spots(marks, size=(6, 6), area=(100, 100))
    apart = np.abs(spots[:, None] - spots[None]).max(axis=2)
    assert (apart[~np.eye(len(spots), dtype=bool)] >= 6).all()
    assert (spots >= 3).all()
    assert (spots <= 97).all()


def test_attention_counts_relative_to_the_strongest() -> None:
    assert relative(np.array([0.004, 0.001, 0.0])).tolist() == pytest.approx([1, 0.5, 0])


def test_colours_of_classes() -> None:
    few = class_colours([([3, 0, 3], [1.0, 0.5, 0.2])])
    assert list(few) == [0, 3]
    assert few[3] == class_colours([([3], [0.1])])[3]
    many = class_colours([(list(range(43)), [float(i) for i in range(43)])])
    assert list(many) == [*range(34, 43), -1]
    assert len(set(many.values())) == 10
    assert class_colours([]) == {}


# The picture


def sources(picture: Pixels) -> dict[str, PatchSource]:
    coords = np.stack(np.meshgrid(np.arange(6), np.arange(4)), axis=-1).reshape(-1, 2) * 256
    return {
        "scene": scene(),
        "slide": open_patches(picture, patch_size=20),
        "padded": open_patches(picture, patch_size=50, edge="pad"),
        "features": MemoryPatches(torch.zeros(24, 8), coords=coords, extent=256),
        "row": MemoryPatches(torch.zeros(300, 8)),
        "few": MemoryPatches(torch.zeros(3, 3, 8, 8, dtype=torch.uint8)),
        "one": MemoryPatches(torch.zeros(1, 8)),
    }


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        ("scene", 10),
        ("scene", None),
        ("slide", 1),
        ("padded", 2),
        ("features", 43),
        ("row", None),
        ("few", 10),
        ("one", None),
    ],
)
def test_a_picture_of_any_bag(
    tmp_path: Path, picture: Pixels, kind: str, classes: int | None
) -> None:
    source = sources(picture)[kind]
    path = tmp_path / "figures" / "a.png"
    names = None if classes is None else [f"class $number {i}" for i in range(max(classes, 2))]
    draw_attention(
        path,
        predictions=[predict(source, classes=classes)],
        sources=[source],
        titles=["predicted 7 at $5, true 7"],
        names=names,
    )
    with PILImage.open(path) as image:
        assert min(image.size) > 500
        assert image.convert("L").getextrema()[0] < 100
    assert list(path.parent.iterdir()) == [path]


def test_images_stand_two_by_two(tmp_path: Path) -> None:
    sizes = {}
    for count in (1, 3):
        path = tmp_path / f"{count}.png"
        draw_attention(
            path,
            predictions=[predict(scene(), classes=10)] * count,
            sources=[scene()] * count,
            titles=["a title"] * count,
            top=1,
        )
        with PILImage.open(path) as image:
            sizes[count] = image.size
    assert 1.8 < sizes[3][0] / sizes[1][0] < 2.2
    assert 1.7 < sizes[3][1] / sizes[1][1] < 2.2


def test_crops_are_read_alone(tmp_path: Path) -> None:
    source = Counted(torch.zeros(400, 1, 64, 64, dtype=torch.uint8))
    overview(source)
    whole, source.most = source.most, 0
    draw_attention(
        tmp_path / "a.png",
        predictions=[predict(source)],
        sources=[source],
        titles=["a title"],
        top=3,
    )
    assert source.most == whole <= 256


def test_a_list_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        draw_attention(
            tmp_path / "a.png", predictions=[predict(scene())], sources=[], titles=["a title"]
        )
