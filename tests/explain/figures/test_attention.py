"""Attention figures of every kind of source, and their colours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.explain.colours import class_colours
from ips.explain.figures.attention import draw_attention
from ips.explain.figures.page import Page
from ips.explain.maps import relative_attention
from ips.patches import Indices, MemoryPatches, PatchSource, open_patches
from tests.explain.explained import explained

Pixels = npt.NDArray[np.uint8]


@pytest.fixture
def picture() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (120, 180, 3), dtype=np.uint8)


def scene() -> PatchSource:
    return MegapixelMNIST(250, count=1)[0][0]


class Counted(MemoryPatches):
    """Records how many patches each call reads."""

    def read(self, indices: Indices) -> Tensor:
        self.counts = [*getattr(self, "counts", []), len(indices)]
        return super().read(indices)


def test_attention_is_relative_to_the_highest() -> None:
    assert relative_attention(np.array([0.004, 0.001, 0.0])).tolist() == pytest.approx([1, 0.5, 0])


def test_colours_of_classes() -> None:
    few = class_colours([([3, 0, 3], [1.0, 0.5, 0.2])])
    assert list(few) == [0, 3]
    assert few[3] == class_colours([([3], [0.1])])[3]
    many = class_colours([(list(range(43)), [float(i) for i in range(43)])])
    assert list(many) == [*range(34, 43), -1]
    assert len(set(many.values())) == 10
    assert class_colours([]) == {}


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
        ("slide", 2),
        ("padded", 2),
        ("features", 43),
        ("row", None),
        ("few", 10),
        ("one", None),
    ],
)
def test_every_kind_of_source_can_be_drawn(
    tmp_path: Path, picture: Pixels, kind: str, classes: int | None
) -> None:
    source = sources(picture)[kind]
    path = tmp_path / "figures" / "a.png"
    names = None if classes is None else [f"class $number {i}" for i in range(classes)]
    explanation = explained(source, keep=12, classes=classes, names=names, title="costs $5, not $7")
    draw_attention(path, [explanation])
    with PILImage.open(path) as image:
        assert min(image.size) > 500
        assert np.asarray(image.convert("L")).min() < 100
    assert list(path.parent.iterdir()) == [path]


def test_images_are_placed_in_two_columns(tmp_path: Path) -> None:
    sizes = {}
    for count in (1, 3):
        path = tmp_path / f"{count}.png"
        draw_attention(path, [explained(scene(), keep=12, classes=10)] * count, top=1)
        with PILImage.open(path) as image:
            sizes[count] = image.size
    assert 1.8 < sizes[3][0] / sizes[1][0] < 2.2
    assert 1.7 < sizes[3][1] / sizes[1][1] < 2.2


def test_only_the_crops_are_read(tmp_path: Path) -> None:
    source = Counted(torch.zeros(400, 1, 64, 64, dtype=torch.uint8))
    draw_attention(tmp_path / "a.png", [explained(source, keep=12)], top=3)
    assert source.counts == [256, 144, 3]  # the thumbnail block by block, then the crops


def test_each_image_needs_a_title(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="zip"):
        draw_attention(tmp_path / "a.png", [explained(scene())], titles=["a", "b"])


@pytest.mark.parametrize("uniform", [True, False])
def test_the_absolute_scale_is_below_the_image(pages: list[Page], uniform: bool) -> None:
    source = MemoryPatches(torch.zeros(144, 8))
    attention = np.full(144, 1 / 144) if uniform else np.array([0.5, *[0.5 / 143] * 143])
    seen = replace(explained(source), all_attention={"grade": attention})
    draw_attention(Path("a.png"), [seen])
    words = [text.get_text() for text in pages[0].figure.texts]
    assert (
        "attention is nearly uniform, highest of 144 patches: 0.694 %, 1.0 x an even share"
        if uniform
        else "highest attention of 144 patches: 50 %, 72 x an even share"
    ) in words
