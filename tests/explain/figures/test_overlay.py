"""Overlays and top patches of every kind of source, and the display in notebooks."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image as PILImage

from ips.errors import PatchError
from ips.explain import attention_map
from ips.explain.figures.overlay import overlay_page, tinted
from ips.explain.figures.page import Page
from ips.explain.figures.top_patches import draw_top_patches
from ips.patches import MemoryPatches, open_patches
from tests.explain.explained import explained


def box(mask: npt.NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of what is True."""
    y, x = np.nonzero(mask)
    return int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1


def test_colours_are_where_the_attention_is(tmp_path: Path) -> None:
    source = open_patches(np.zeros((400, 400), np.uint8), patch_size=100)
    attention = np.zeros(16)
    attention[6] = 1.0  # x 200, y 100
    seen = replace(explained(source), all_attention={"grade": attention})
    drawn = overlay_page(seen)
    drawn.save(tmp_path / "o.png")
    page = np.asarray(PILImage.open(tmp_path / "o.png").convert("RGB")).astype(int)
    axes = drawn.figure.axes[0].get_position()
    below = round((1 - axes.y0) * len(page))  # crops are below the map
    left, top, right, bottom = box(page[:below].max(axis=2) < 8)
    panel = page[top:bottom, left:right]
    coloured = box((panel[..., 0] > 100) & (panel[..., 2] < 100))
    shares = np.array(coloured) / ([right - left, bottom - top] * 2)
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.75, 0.5], atol=0.01)


def test_opacity_grows_with_rank() -> None:
    source = open_patches(np.zeros((10, 40), np.uint8), patch_size=10)
    raster = attention_map(source, np.array([0.0, 1e-8, 1e-6, 0.9]))
    colours = tinted(raster, raster.values)
    assert colours.shape == (1, 4, 4)
    assert colours[0, :2, 3].tolist() == [0, 0]
    assert 0 < colours[0, 2, 3] < colours[0, 3, 3] < 255


@pytest.mark.parametrize("tasks", [("a",), ("a", "b"), tuple("abcd")])
def test_every_task_and_the_mean_have_a_panel(tmp_path: Path, tasks: tuple[str, ...]) -> None:
    source = open_patches(np.zeros((60, 90), np.uint8), patch_size=10)
    seen = explained(source, tasks=tasks, title="$x_1$ [a]: <b>")
    overlay_page(seen).save(tmp_path / "o.png")
    page = np.asarray(PILImage.open(tmp_path / "o.png").convert("L")) < 8
    starts = np.diff(page.any(axis=0).astype(int)) == 1
    panels = 1 if len(tasks) == 1 else 1 + len(tasks)
    assert starts.sum() >= min(panels, 3)


def texts(page: Page) -> list[str]:
    return [" ".join(text.get_text().split()) for text in page.figure.texts]


def test_nearly_uniform_attention_is_called_so() -> None:
    source = open_patches(np.zeros((40, 40), np.uint8), patch_size=10)
    even, peak = np.full(16, 1 / 16), np.full(16, 1 / 30)
    peak[3] = 0.5
    attention = {"a": even, "b": peak}
    found = texts(overlay_page(replace(explained(source), all_attention=attention)))
    assert found[1:7] == [
        *("mean over tasks", "highest: 28.1 %, 4.5 x an even share"),
        *("a: nearly uniform", "highest: 6.25 %, 1.0 x an even share"),
        *("b", "highest: 50 %, 8.0 x an even share"),
    ]


@pytest.mark.parametrize("uniform", [True, False])
def test_top_patches_have_an_absolute_scale(pages: list[Page], uniform: bool) -> None:
    source = open_patches(np.zeros((20, 40), np.uint8), patch_size=10)
    attention = np.full(8, 1 / 8) if uniform else np.array([0.5, *[0.5 / 7] * 7])
    seen = replace(explained(source), all_attention={"grade": attention})
    draw_top_patches(Path("g.png"), seen, top=1)
    found = texts(pages[0])
    words = "attention is nearly uniform, highest of 8 patches: 12.5 %, 1.0 x an even share"
    assert found[0] == (f"a title {words}" if uniform else "a title")
    assert found[1] == ("12 % 1.0 x" if uniform else "50 % 4.0 x")


def test_features_have_an_overlay_but_no_top_patches(tmp_path: Path) -> None:
    coords = np.stack([np.arange(12) % 4, np.arange(12) // 4], axis=1) * 256
    bag = MemoryPatches(torch.rand(12, 4), coords=coords, extent=256, name="bag.h5")
    seen = explained(bag)
    overlay_page(seen).save(tmp_path / "o.png")
    assert np.asarray(PILImage.open(tmp_path / "o.png").convert("RGB")).std() > 5
    with pytest.raises(PatchError, match=r"bag\.h5: holds features, not pixels"):
        draw_top_patches(tmp_path / "g.png", seen)
    assert explained(MemoryPatches(torch.rand(5, 4))).overlay().width > 300


def test_top_patches_are_sorted_by_attention(tmp_path: Path) -> None:
    grey = np.arange(16, dtype=np.uint8).repeat(100).reshape(16, 1, 10, 10) * 15
    source = MemoryPatches(torch.from_numpy(grey))
    attention = np.zeros(16)
    attention[[3, 14]] = 0.25, 0.75
    seen = replace(explained(source, classes=3), all_attention={"a": attention})
    draw_top_patches(tmp_path / "g.png", seen)
    page = np.asarray(PILImage.open(tmp_path / "g.png").convert("L"))
    side = int(1.1 * 150) - 4
    shown = [value for value in range(16) if (page == 15 * value).sum() > side * side]
    assert shown == [3, 14]
    assert box(page == 15 * 14)[0] < box(page == 15 * 3)[0]


class TestNotebook:
    def test_overlay_is_a_png(self) -> None:
        source = open_patches(np.zeros((60, 60), np.uint8), patch_size=10)
        seen = explained(source)
        with seen.overlay() as picture:
            assert picture.format == "PNG"
            assert min(picture.size) > 100
        assert not hasattr(seen, "_repr_png_")  # or a notebook would draw it twice

    def test_html_escapes_names(self) -> None:
        source = open_patches(np.zeros((60, 60), np.uint8), patch_size=10)
        page = explained(source, tasks=("<script>",))._repr_html_()
        assert "<script>" not in page
        assert "&lt;high&gt;: 0.750" in page
        assert page.index("&lt;high&gt;") < page.index("low: 0.250")
        found = re.search(r'src="data:image/png;base64,([^"]+)"', page)
        assert found is not None
        assert base64.b64decode(found[1]).startswith(b"\x89PNG")

    def test_repr_is_one_line(self) -> None:
        source = open_patches(np.zeros((60, 60), np.uint8), patch_size=10)
        assert repr(explained(source, title="a.png: grade low")) == (
            "<Explanation of a.png: grade low, from 3 of 36 patches>"
        )
