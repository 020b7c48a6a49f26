"""Top patches against a sort of all patches, and the layout of the gallery."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.errors import PatchError
from ips.explain.figures.gallery import (
    TopPatch,
    TopPatches,
    draw_gallery,
    read_pixels,
    short_name,
)
from ips.explain.figures.page import Page
from ips.patches import Indices, MemoryPatches

Bag = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]

SIDE, PITCH, ROW, MARGIN = 100, 115, 175, 45


def bags(count: int, *, seed: int = 0) -> list[Bag]:
    """Patch numbers and attention of images; of few different values, so that many are equal."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, count)
    return [(rng.permutation(50)[:k], rng.integers(0, 8, k) / 8) for k in sizes]


def sorted_patches(images: list[Bag], count: int) -> list[TopPatch]:
    """Everything in one list, sorted."""
    found = [
        TopPatch(str(number), number, int(i), float(a), len(indices))
        for number, (indices, attention) in enumerate(images)
        for i, a in zip(indices, attention, strict=True)
    ]
    return sorted(found, key=lambda p: (-p.attention, p.number, p.index))[:count]


def grey(value: int) -> npt.NDArray[np.uint8]:
    return np.full((1, 50, 50), value, dtype=np.uint8)


class Watched(MemoryPatches):
    """Remembers what was read, and whether it was closed."""

    def __init__(self, patches: Tensor, *, name: str = "a") -> None:
        super().__init__(patches, name=name)
        self.asked: list[list[int]] = []
        self.closed = False

    def read(self, indices: Indices) -> Tensor:
        self.asked.append([int(i) for i in indices])
        return super().read(indices)

    def close(self) -> None:
        self.closed = True


def picture(path: Path) -> npt.NDArray[np.uint8]:
    with PILImage.open(path) as opened:
        return np.asarray(opened.convert("RGB"))


def top_of(pixels: npt.NDArray[np.uint8]) -> int:
    """The first row of the first patch, below the title and the frame."""
    rule = (pixels[:, MARGIN] != 255).any(axis=1)
    run = np.convolve(rule, np.ones(SIDE), mode="valid")  # the only thing as high as that
    return int(np.argmax(run == SIDE)) + 1


# Collecting


@pytest.mark.parametrize("count", [1, 7, 60, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_top_patches_equal_a_sort_of_all_patches(count: int, seed: int) -> None:
    images = bags(40, seed=seed)
    top = TopPatches(count)
    for number in np.random.default_rng(seed).permutation(len(images)).tolist():
        indices, attention = images[number]
        top.add(str(number), number, indices=indices, attention=torch.from_numpy(attention))
        assert len(top.patches) <= count
    assert top.patches == sorted_patches(images, count)


def test_nan_attention_is_ignored() -> None:
    top = TopPatches(3)
    top.add("a", 0, indices=[0, 1, 2], attention=[np.nan, 0.2, np.nan])
    top.add("b", 1, indices=torch.tensor([5]), attention=torch.tensor([0.8]))
    assert [(p.name, p.index) for p in top.patches] == [("b", 5), ("a", 1)]


def test_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match=r"slide.svs"):
        TopPatches(3).add("slide.svs", 0, indices=[0, 1], attention=[0.5])


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        TopPatches(0)


# Reading


def test_only_the_top_patches_are_read_and_each_image_once() -> None:
    numbers = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1).expand(20, 1, 4, 4)
    sources = [Watched(numbers + 20 * i, name=f"{i}") for i in range(3)]
    opened: list[int] = []

    def source(number: int) -> Watched:
        opened.append(number)
        return sources[number]

    wanted = [(2, 3, 0.9), (0, 7, 0.8), (2, 1, 0.7), (0, 2, 0.6)]
    patches = [TopPatch(str(n), n, index, attention, 9) for n, index, attention in wanted]
    pixels = read_pixels(patches, source=source)
    assert [int(one[0, 0, 0]) for one in pixels] == [43, 7, 41, 2]
    assert opened == [0, 2]
    assert [s.asked for s in sources] == [[[7, 2]], [], [[3, 1]]]
    assert [s.closed for s in sources] == [True, False, True]


def test_features_are_refused() -> None:
    source = MemoryPatches(torch.zeros(4, 512), name="slide.h5")
    with pytest.raises(PatchError, match=r"slide.h5: holds features"):
        read_pixels([TopPatch("slide.h5", 0, 1, 0.5, 9)], source=lambda number: source)


# The picture


def test_patches_are_drawn_row_by_row(tmp_path: Path) -> None:
    values = [8 * v for v in range(30)]
    patches = [TopPatch("a.png", 0, i, 1 - i / 30, 30) for i in range(30)]
    path = tmp_path / "figures" / "a.png"
    draw_gallery(path, patches, pixels=[grey(value) for value in values], title="costs $5")
    pixels = picture(path)
    top = top_of(pixels)
    centres = [
        pixels[top + i // 12 * ROW + SIDE // 2, MARGIN + i % 12 * PITCH + SIDE // 2, 0]
        for i in range(30)
    ]
    assert centres == values
    assert list((tmp_path / "figures").iterdir()) == [tmp_path / "figures" / "a.png"]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [25, 50, 100, 400])
def test_patches_are_scaled_to_their_square(tmp_path: Path, side: int, channels: int) -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (channels, side, side), dtype=np.uint8)
    draw_gallery(tmp_path / "a.png", [TopPatch("a", 0, 0, 0.5, 9)], pixels=[pixels], title="a")
    drawn = picture(tmp_path / "a.png")
    top = top_of(drawn)
    found = drawn[top : top + SIDE, MARGIN : MARGIN + SIDE].transpose(2, 0, 1)
    if side > SIDE:
        n = side // SIDE
        expected = pixels.reshape(channels, SIDE, n, SIDE, n).mean(axis=(2, 4))
    else:
        expected = np.kron(pixels, np.ones((1, SIDE // side, SIDE // side)))
    expected = np.broadcast_to(expected, (3, SIDE, SIDE))
    inner = np.s_[:, 2:-2, 2:-2]  # without the frame
    np.testing.assert_allclose(found[inner], expected[inner], atol=0 if side <= SIDE else 1)


def test_captions_do_not_overlap_and_stay_on_the_page(pages: list[Page]) -> None:
    names = ["data/test/WWWWWWWWWWWWWWWWWWWWWWWW.png", "slide_017.svs", "0"]
    patches = [TopPatch(names[i % 3], 0, i, 1 - i / 40, 9) for i in range(28)]
    title = "The patches with most attention, " * 6
    draw_gallery(Path("a.png"), patches, pixels=[grey(9)] * 28, title=title)
    figure = pages[0].figure
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.texts]
    assert len(boxes) == 2 + 2 * 28
    for box in boxes:
        assert figure.bbox.containsx(box.x1)
        assert figure.bbox.containsy(box.y0)
    assert not [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b)]


def test_an_even_share_is_in_the_note(pages: list[Page]) -> None:
    patches = [TopPatch("a", 0, i, 0.3 - i / 10, 8 + 12 * i) for i in range(2)]
    draw_gallery(Path("a.png"), patches, pixels=[grey(9)] * 2, title="a")
    words = " ".join(pages[0].figure.texts[-1].get_text().split())
    assert words.endswith("An even share would be 5 % to 12 %.")


def test_images_with_nearly_uniform_attention_are_counted() -> None:
    top = TopPatches(3)
    top.add("a", 0, indices=[0, 1], attention=[0.5, 0.5])
    top.add("b", 1, indices=[0, 1], attention=[0.9, 0.1])
    assert (top.images, top.uniform) == (2, 1)


def test_long_names_are_shortened() -> None:
    assert short_name("megapixel-mnist/test/12", 12) == "test/12"
    assert short_name("slide.svs", 9) == "slide.svs"
    assert short_name("data/patient_012_slide_3.svs", 11) == "patie…3.svs"
    assert len(short_name("x" * 40, 10)) == 10


def test_an_empty_gallery_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="no patches to show"):
        draw_gallery(tmp_path / "a.png", [], pixels=[], title="a")
