from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from ips.images import open_image
from ips.slides.listing import list_slides
from ips.slides.tissue import GREEN, tissue_file
from ips.slides.tissue_file import load_tissue
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
        found = load_tissue(tissue_file(out, "a"), image)
    x, y = found.source.coords.T
    assert (x.min(), x.max(), y.min(), y.max()) == (192, 384, 64, 256)


def test_thumbnail_shows_what_was_kept(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert Outcome("slides", "tissue", folder / "a.tif", "--out", out, *WORDS).code == 0
    with Image.open(out / "thumbnails" / "a.png") as picture:
        drawn = np.asarray(picture)
    assert drawn.shape == (512, 640, 3)  # never enlarged
    green = (drawn == GREEN).all(axis=-1)
    y, x = np.nonzero(green)
    assert (x.min(), x.max() + 1, y.min(), y.max() + 1) == (192, 448, 64, 320)
    with open_image(folder / "a.tif") as image:
        pixels = image.read_region((0, 0), 0, (640, 512))
    inside = np.s_[100:300, 200:420]
    assert np.array_equal(drawn[inside], pixels[inside])
    assert (drawn[:60] > pixels[:60]).all()


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
    for other in (("--patch-size", "32"), ("--tissue-level", "0")):
        assert "give another --out" in Outcome(*words, *other).sentence


def test_resolution_is_chosen_by_mpp(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    slide = folder / "a.tif"
    words = ("slides", "tissue", slide, "--out", out, "--patch-size", "64", "--mpp", "1")
    assert "of 20" in Outcome(*words).out
    with open_image(slide) as image:
        assert load_tissue(tissue_file(out, "a"), image).patches.extent == 128
    both = Outcome("slides", "tissue", slide, "--out", tmp_path / "x", "--mpp", "1", "--level", "0")
    assert "give one of them" in both.sentence


def test_places_without_slides_and_names_given_twice_are_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "a.tif", np.full((64, 64, 3), 240, np.uint8))
    out = ("--out", tmp_path / "out")
    told = {
        (tmp_path / "empty",): "no slide in this folder",
        (tmp_path / "none.tif",): "does not exist",
        (tmp_path / "x", tmp_path / "y"): "have the same name",
    }
    for paths, words in told.items():
        assert words in Outcome("slides", "tissue", *paths, *out).sentence
    assert list_slides([tmp_path / "x", tmp_path / "x" / "a.tif"]) == [tmp_path / "x" / "a.tif"]


def test_generated_slides_go_into_the_next_command(tmp_path: Path) -> None:
    made = Outcome("data", "tissue-slides", tmp_path / "set", "--count", "2", "--side", "1024")
    assert made.code == 0
    assert "2 slides of 1,024 x 1,024 px" in made.err
    out = tmp_path / "set" / "tissue"
    found = Outcome("slides", "tissue", tmp_path / "set" / "slides", "--out", out, *WORDS)
    assert found.code == 0
    assert "tissue in 2 of 2 slides, none in 0" in found.err
    wrong = Outcome("data", "tissue-slides", tmp_path / "other", "--side", "1000")
    assert "multiple of 256" in wrong.sentence


def test_an_interruption_says_how_to_go_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ips.slides.tissue.tissue_patches", interrupted)
    outcome = Outcome("slides", "tissue", folder, "--out", tmp_path / "out", *WORDS)
    assert outcome.code == 130
    assert "run the same command again to continue" in outcome.err
