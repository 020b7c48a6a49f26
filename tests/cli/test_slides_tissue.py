from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from ips.images import open_image
from ips.patches.tissue_file import load_tissue
from ips.slides.tissue import tissue_path
from tests.command import Outcome


def write(path: Path, pixels: np.ndarray) -> Path:
    options = {"tile": (64, 64), "compression": "deflate", "photometric": "rgb"}
    with tifffile.TiffWriter(path) as file:
        settings = {"resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}
        file.write(pixels, **options, **settings)
        file.write(pixels[::4, ::4], subfiletype=1, **options)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good slide, a blank one, and one that was not copied to its end."""
    folder = tmp_path / "scans"
    folder.mkdir()
    rng = np.random.default_rng(0)
    glass = rng.integers(240, 245, (512, 640, 3), dtype=np.uint8)
    tissue = glass.copy()
    tissue[100:300, 200:420] = rng.integers(60, 210, (200, 220, 3))
    write(folder / "a.tif", tissue)
    write(folder / "b.tif", glass)
    whole = write(folder / "c.tif", tissue).read_bytes()
    (folder / "c.tif").write_bytes(whole[: len(whole) // 2])
    (folder / "notes.txt").write_text("not a slide")
    return folder


WORDS = ("--patch-size", "64", "--skip-errors")


def test_good_blank_and_damaged_slides(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    outcome = Outcome("slides", "tissue", folder, "--out", out, *WORDS)
    assert outcome.code == 1  # for the damaged one
    line = {name: row for row in outcome.out.splitlines() for name in "abc" if f"{name}.tif" in row}
    assert "16 of 80" in line["a"]
    assert "0 of 80" in line["b"]
    assert "nothing stands out" in line["b"]
    assert "c.tif" in line["c"]
    assert "damaged" in outcome.out
    assert "tissue in 1 of 3 slides, none in 1, 1 not read" in outcome.err
    assert sorted(p.name for p in out.glob("*/*")) == [
        "a.png",
        "a_patches.h5",
        "b.png",
        "b_patches.h5",
    ]
    with open_image(folder / "a.tif") as image:
        found = load_tissue(tissue_path(out, "a"), image)
    x, y = found.source.coords.T
    assert (x.min(), x.max(), y.min(), y.max()) == (192, 384, 64, 256)


def test_an_unreadable_slide_stops_the_command(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ("slides", "tissue", folder, "--out", out, "--patch-size", "64")
    sentence = Outcome(*words).sentence
    assert "c.tif" in sentence
    assert "--skip-errors" in sentence
    assert len(list(out.glob("patches/*"))) == 2  # those before it are kept


def test_finished_slides_are_not_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ("slides", "tissue", folder / "a.tif", folder / "b.tif", "--out", out, *WORDS)
    first = Outcome(*words)
    assert first.code == 0
    monkeypatch.setattr("ips.slides.tissue.tissue_patches", None)
    again = Outcome(*words)
    assert again.code == 0
    assert again.out == first.out
    for other in (("--patch-size", "32"), ("--tissue-level", "0"), ("--background", "dark")):
        assert "give another output folder" in Outcome(*words, *other).sentence


def test_resolution_is_chosen_by_mpp(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    slide = folder / "a.tif"
    words = ("slides", "tissue", slide, "--out", out, "--patch-size", "64", "--mpp", "1")
    assert "of 20" in Outcome(*words).out
    with open_image(slide) as image:
        assert load_tissue(tissue_path(out, "a"), image).patches.extent == 128
    both = Outcome("slides", "tissue", slide, "--out", tmp_path / "x", "--mpp", "1", "--level", "0")
    assert "give one of them" in both.sentence


def test_drawn_slides_can_be_searched_for_tissue(tmp_path: Path) -> None:
    made = Outcome("data", "tissue-slides", tmp_path / "set", "--count", "2", "--side", "1024")
    assert made.code == 0
    assert "2 slides of 1,024 x 1,024 px" in made.err
    out = tmp_path / "set" / "tissue"
    found = Outcome("slides", "tissue", tmp_path / "set" / "slides", "--out", out, *WORDS)
    assert found.code == 0
    assert "tissue in 2 of 2 slides, none in 0" in found.err
    wrong = Outcome("data", "tissue-slides", tmp_path / "other", "--side", "1000")
    assert "multiple of 256" in wrong.sentence


def test_an_interruption_prints_how_to_continue(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ips.slides.tissue.tissue_patches", interrupted)
    outcome = Outcome("slides", "tissue", folder, "--out", tmp_path / "out", *WORDS)
    assert outcome.code == 130
    assert "run the same command again to continue" in outcome.err
