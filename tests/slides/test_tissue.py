"""Tissue of many slides: coordinate files, thumbnails and slides that fail."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from rich.console import Console

from ips.errors import ConfigError, ImageError
from ips.images import open_image
from ips.patches import Edge
from ips.patches.tissue import TissueSettings
from ips.patches.tissue_file import load_tissue
from ips.slides.coords import Resolution, slide_patches
from ips.slides.tissue import GREEN, find_tissue, tissue_path

PATCH = Resolution(64)


@pytest.fixture
def slides(tmp_path: Path) -> list[Path]:
    """A slide with tissue, one without, and a truncated one."""
    rng = np.random.default_rng(0)
    glass = rng.integers(240, 245, (512, 640, 3), dtype=np.uint8)
    tissue = glass.copy()
    tissue[100:300, 200:420] = rng.integers(60, 210, (200, 220, 3))
    paths = [tmp_path / f"{name}.tif" for name in "abc"]
    for path, pixels in zip(paths, (tissue, glass, tissue), strict=True):
        tifffile.imwrite(path, pixels, photometric="rgb", tile=(64, 64), compression="deflate")
    content = paths[2].read_bytes()
    paths[2].write_bytes(content[: len(content) // 2])
    return paths


def test_counts_and_coordinates(slides: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    found = find_tissue(slides, out=out, resolution=PATCH, skip_errors=True, console=console)
    assert [(s.slide, s.kept, s.total, s.failed) for s in found] == [
        (slides[0], 16, 80, False),
        (slides[1], 0, 80, False),
        (slides[2], 0, 0, True),
    ]
    assert found[0].note == ""
    assert "nothing stands out" in found[1].note
    assert "c.tif" in found[2].note
    assert isinstance(console.file, io.StringIO)
    assert "3/3" in console.file.getvalue()
    with open_image(slides[0]) as image:
        x, y = load_tissue(tissue_path(out, "a"), image).source.coords.T
    assert (x.min(), x.max(), y.min(), y.max()) == (192, 384, 64, 256)


def test_an_unreadable_slide_is_an_error_by_default(slides: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"c\.tif"):
        find_tissue(slides, out=tmp_path / "out", resolution=PATCH)
    assert tissue_path(tmp_path / "out", "b").exists()  # finished before


def test_other_settings_than_before_are_refused(slides: list[Path], tmp_path: Path) -> None:
    find_tissue(slides[:1], out=tmp_path / "out", resolution=PATCH)
    with pytest.raises(ConfigError, match="was made with --patch-size 64: give"):
        find_tissue(slides[:1], out=tmp_path / "out", resolution=Resolution(32))
    other = TissueSettings(min_share=0.5, skip_pen=True)
    with pytest.raises(ConfigError, match=r"made with --min-share 0\.01, --skip-pen False: give"):
        find_tissue(slides[:1], out=tmp_path / "out", resolution=PATCH, settings=other)
    # without patches across the border, all ways to treat them are the same
    (same,) = find_tissue(slides[:1], out=tmp_path / "out", resolution=PATCH, edge="drop")
    assert same.kept == 16


def test_a_slide_full_of_tissue_gets_a_note(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(60, 210, (256, 256, 3), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", tile=(64, 64))
    (found,) = find_tissue([tmp_path / "a.tif"], out=tmp_path / "out", resolution=PATCH)
    assert found.kept == found.total
    assert found.note.startswith("nearly all patches count as tissue: check the thumbnail")
    assert "--background dark" in found.note


def test_the_thumbnail_outlines_tissue_and_fades_the_rest(
    slides: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    find_tissue(slides[:1], out=out, resolution=PATCH)
    with Image.open(out / "thumbnails" / "a.png") as picture:
        drawn = np.asarray(picture)
    assert drawn.shape == (512, 640, 3)  # never enlarged
    green = (drawn == GREEN).all(axis=-1)
    y, x = np.nonzero(green)
    assert (x.min(), x.max() + 1, y.min(), y.max() + 1) == (192, 448, 64, 320)
    with open_image(slides[0]) as image:
        pixels = image.read_region((0, 0), 0, (640, 512))
    inside = np.s_[100:300, 200:420]
    assert np.array_equal(drawn[inside], pixels[inside])
    assert (drawn[:60] > pixels[:60]).all()


def test_patches_that_cross_the_border_are_kept_on_request(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    slide = rng.integers(240, 245, (160, 200, 3), dtype=np.uint8)
    slide[100:, 150:] = rng.integers(60, 210, (60, 50, 3))  # in the lower right corner
    tifffile.imwrite(tmp_path / "a.tif", slide, photometric="rgb", tile=(64, 64))
    corners: dict[str, set[tuple[int, int]]] = {}
    edges: tuple[Edge, ...] = ("drop", "pad", "fit")
    for edge in edges:
        out = tmp_path / edge
        find_tissue([tmp_path / "a.tif"], out=out, resolution=PATCH, edge=edge)
        patches = slide_patches(tmp_path / "a.tif", resolution=Resolution(), coords=out)
        corners[edge] = {(x, y) for x, y in patches.coords.tolist()}
        assert patches.read([len(patches) - 1]).shape == (1, 3, 64, 64)
    assert corners["drop"] == {(128, 64)}
    assert corners["fit"] == {(128, 64), (136, 64), (128, 96), (136, 96)}
    assert corners["pad"] == {(128, 64), (192, 64), (128, 128), (192, 128)}
    with pytest.raises(ConfigError, match="made with --edge pad: give another output folder"):
        find_tissue([tmp_path / "a.tif"], out=tmp_path / "pad", resolution=PATCH)
