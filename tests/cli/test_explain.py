"""`ips explain`."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
from PIL import Image
from rich.console import Console

from ips.annotations import polygon_feature, write_geojson
from ips.config_io import override, parse_config
from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.loading import load
from ips.predictor import Predictor
from ips.scores import ScoreFile
from ips.training import train
from tests.cli.tiny import TINY
from tests.command import Outcome, refused

CONFIG = override(TINY, ["patches.stride=25"])
ENDS = ["-classes.png", "-gallery.png", "-map.tif", "-overlay.png", "-patches.csv", ".geojson"]


def written(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith("."))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained run and a picture of 7 x 7 patches."""
    folder = tmp_path_factory.mktemp("home")
    train(parse_config(CONFIG, source="test"), folder / "run", console=Console(quiet=True))
    Image.fromarray(MegapixelMNIST(200, count=1)[0][0].dense()).save(folder / "digits.png")
    return folder


def test_writes_all_files(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    outcome = Outcome("explain", home / "run", home / "digits.png", "--out", out)
    assert outcome.code == 0, outcome.err
    assert "majority" in outcome.out
    assert "of 49 patches: " in outcome.err
    assert written(out) == sorted(f"digits{end}" for end in ENDS)
    for end in ENDS:
        if end.endswith(".png"):
            with Image.open(out / f"digits{end}") as picture:
                assert min(picture.size) > 200
    shown = load(home / "run").predict(home / "digits.png")
    with (out / "digits-patches.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 49
    np.testing.assert_allclose(
        [float(line["attention_multi"]) for line in lines],
        shown.all_attention["multi"],
        rtol=1e-4,
    )
    kept = {int(line["index"]) for line in lines if line["selected"] == "1"}
    assert kept == set(shown.indices.tolist())
    features = json.loads((out / "digits.geojson").read_text())["features"]
    assert [f["properties"]["measurements"]["patch"] for f in features] == shown.indices.tolist()
    assert tifffile.imread(out / "digits-map.tif").shape == (200, 200)


def test_options(home: Path, tmp_path: Path) -> None:
    words = ("explain", home / "run", home / "digits.png", "--out", tmp_path)
    assert Outcome(*words, "--all-patches", "--task", "multi", "--top", "1").code == 0
    features = json.loads((tmp_path / "digits.geojson").read_text())["features"]
    assert len(features) == 49
    with tifffile.TiffFile(tmp_path / "digits-map.tif") as file:
        assert json.loads(file.pages.first.description)["task"] == "multi"
    with Image.open(tmp_path / "digits-gallery.png") as picture:
        assert picture.height < 600  # one row


def test_an_unreadable_image_does_not_stop_the_others(home: Path, tmp_path: Path) -> None:
    bad = tmp_path / "no.png"
    outcome = Outcome("explain", home / "run", bad, home / "digits.png", "--out", tmp_path / "out")
    assert outcome.code == 1
    assert "no.png does not exist" in outcome.err
    assert len(written(tmp_path / "out")) == len(ENDS)


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run trained on features, and a bag that does not say how large a patch is."""
    folder = tmp_path_factory.mktemp("features")
    rng = np.random.default_rng(0)
    coords = np.stack([np.arange(12) % 4, np.arange(12) // 4], axis=1) * 256
    for name in "abcd":
        with h5py.File(folder / f"{name}.h5", "w") as file:
            file["features"] = rng.random((12, 8), dtype=np.float32)
            file["coords"] = coords
            if name != "d":  # says how large a patch is
                file["coords"].attrs["patch_size_level0"] = 256
    lines = ["path,grade,split", "a.h5,0,train", "b.h5,1,train", "c.h5,0,test", "d.h5,1,test"]
    (folder / "bags.csv").write_text("\n".join(lines))
    config = {
        "data": {"kind": "table", "csv": str(folder / "bags.csv")},
        "encoder": {"name": "projector", "dim": 8},
        "select": {"keep": 4, "chunk": 4},
        "aggregate": {"heads": 4},
        "train": {"epochs": 1, "batch": 2, "warmup": 0},
        "tasks": {"grade": {"kind": "multiclass", "classes": 2}},
    }
    train(parse_config(config, source="test"), folder / "run", console=Console(quiet=True))
    return folder


@pytest.fixture(scope="module")
def slides(bags: Path) -> Path:
    """A folder with the slides of c and d inside, and annotations beside them."""
    folder = bags / "scans" / "2024"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in "cd":
        pixels = rng.integers(0, 256, (800, 1100, 3), dtype=np.uint8)
        tifffile.imwrite(folder / f"{name}.tif", pixels, tile=(128, 128), photometric="rgb")
    corners = [(256, 256), (512, 256), (512, 512)]
    write_geojson(folder / "c.geojson", [polygon_feature(corners, name="tumour")])
    return bags / "scans"


class TestSlides:
    """Feature files whose slide is known."""

    ends = ("-gallery.png", "-map.tif", "-overlay.png", "-patches.csv", ".geojson")

    def test_of_a_folder(self, bags: Path, slides: Path, tmp_path: Path) -> None:
        words = ("explain", bags / "run", bags / "c.h5", "--slides", slides, "--out", tmp_path)
        outcome = Outcome(*words)
        assert outcome.code == 0, outcome.err
        assert written(tmp_path) == sorted(f"c{end}" for end in self.ends)
        assert "c.h5: " in outcome.err
        assert "not found" not in outcome.err
        assert tifffile.imread(tmp_path / "c-map.tif").shape == (800, 1100)
        plain = (tmp_path / "c-overlay.png").read_bytes()
        (tmp_path / "none").mkdir()
        assert Outcome(*words, "--annotations", tmp_path / "none").code == 0
        assert (tmp_path / "c-overlay.png").read_bytes() != plain  # without contours

    def test_of_a_table(self, bags: Path, slides: Path, tmp_path: Path) -> None:
        lines = ["path,slide", f"{bags}/c.h5,{slides}/2024/d.tif"]
        (tmp_path / "table.csv").write_text("\n".join(lines))
        out = tmp_path / "out"
        outcome = Outcome("explain", bags / "run", tmp_path / "table.csv", "--out", out)
        assert outcome.code == 0, outcome.err
        assert written(out) == sorted(f"c{end}" for end in self.ends)

    def test_with_a_patch_size(self, bags: Path, slides: Path, tmp_path: Path) -> None:
        words = ("explain", bags / "run", bags / "d.h5", "--out", tmp_path, "--patch-size", "256")
        assert Outcome(*words, "--slides", slides, "--level", "0").code == 0
        assert written(tmp_path) == sorted(f"d{end}" for end in self.ends)
        ring = json.loads((tmp_path / "d.geojson").read_text())["features"][0]["geometry"]
        assert np.ptp(ring["coordinates"][0], axis=0).tolist() == [256, 256]

    def test_mistakes(self, bags: Path, slides: Path, tmp_path: Path) -> None:
        words = ("explain", bags / "run", bags / "c.h5", "--out", tmp_path / "out")
        assert "no such folder" in refused(*words, "--slides", tmp_path / "no")
        assert "give that, too" in refused(*words, "--mpp", "0.5")
        assert "no such file or folder" in refused(*words, "--annotations", tmp_path / "no")
        assert not (tmp_path / "out").exists()


class TestFeatures:
    """Feature files have no pixels; all other files are written."""

    def test_with_coordinates(self, bags: Path, tmp_path: Path) -> None:
        outcome = Outcome("explain", bags / "run", bags / "c.h5", "--out", tmp_path)
        assert outcome.code == 0, outcome.err
        ends = ("-map.tif", "-overlay.png", "-patches.csv", ".geojson")
        assert written(tmp_path) == sorted(f"c{end}" for end in ends)
        assert "c.h5: holds features, and its slide was not found" in outcome.err
        where = "count pixels from the corner of the whole slide"
        assert where in " ".join(outcome.err.split())
        words = ("explain", bags / "run", bags / "c.h5", "--out", tmp_path, "--no-crop")
        assert where not in " ".join(Outcome(*words).err.split())

    def test_without_a_patch_size(self, bags: Path, tmp_path: Path) -> None:
        outcome = Outcome("explain", bags / "run", bags / "d.h5", "--out", tmp_path)
        assert outcome.code == 0, outcome.err
        assert written(tmp_path) == ["d-overlay.png", "d-patches.csv"]
        assert "no GeoJSON and no TIFF: give --patch-size" in " ".join(outcome.err.split())


class TestErrors:
    def test_would_replace_an_image(self, home: Path, tmp_path: Path) -> None:
        images = [tmp_path / name for name in ("x.png", "x-overlay.png")]
        for image in images:
            shutil.copy(home / "digits.png", image)
        message = refused("explain", home / "run", *images, "--out", tmp_path)
        assert "x-overlay.png, which is one of the images: choose another folder" in message
        assert written(tmp_path) == ["x-overlay.png", "x.png"]

    def test_the_output_folder_is_a_file(self, home: Path, tmp_path: Path) -> None:
        (tmp_path / "out").touch()
        words = ("explain", home / "run", home / "digits.png", "--out", tmp_path / "out")
        assert refused(*words) == f"--out {tmp_path / 'out'}: that is a file: give a folder"

    def test_an_unknown_task(self, home: Path, tmp_path: Path) -> None:
        words = ("explain", home / "run", home / "digits.png", "--out", tmp_path, "--task", "x")
        assert refused(*words) == (
            "--task x: the model has no such task: choose one of majority, multi"
        )

    def test_no_run_folder(self, home: Path, tmp_path: Path) -> None:
        words = ("explain", tmp_path / "none", home / "digits.png", "--out", tmp_path / "out")
        assert "no such run folder" in refused(*words)
        assert not (tmp_path / "out").exists()


def test_an_explained_image_is_left_alone(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, ordinary, predicted = tmp_path / "digits.png", Predictor.predict, 0
    shutil.copy(home / "digits.png", image)

    def counting(self: Predictor, image: str, **options: Any) -> Any:
        nonlocal predicted
        predicted += 1
        return ordinary(self, image, **options)

    monkeypatch.setattr(Predictor, "predict", counting)
    words = ("explain", home / "run", image, "--out", tmp_path / "out")
    first = Outcome(*words)
    again = Outcome(*words)
    assert (again.code, again.out, predicted) == (0, first.out, 1)
    (tmp_path / "out" / "digits-map.tif").unlink()
    Outcome(*words)
    assert (tmp_path / "out" / "digits-map.tif").is_file()
    Outcome(*words, "--top", "3")
    corners = [(0, 0), (9, 0), (9, 9)]
    write_geojson(tmp_path / "digits.geojson", [polygon_feature(corners, name="tumour")])
    Outcome(*words, "--top", "3")
    image.touch()
    (tmp_path / "out" / ".digits.explained").write_text("damaged")
    Outcome(*words, "--top", "3")
    assert predicted == 5


def test_an_interrupted_explanation_continues(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any) -> None:
        raise KeyboardInterrupt

    words = ("explain", home / "run", home / "digits.png", "--out", tmp_path)
    monkeypatch.setattr("ips.predictor._LARGE", 1)
    with monkeypatch.context() as patch:
        patch.setattr(ScoreFile, "put", stop)
        outcome = Outcome(*words)
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1] == (
        f"interrupted: the scores so far are in {home / 'run' / 'unfinished'}: "
        "run the same command again to continue"
    )
    assert len(list((home / "run" / "unfinished").iterdir())) == 1
    assert Outcome(*words).code == 0
    assert not list((home / "run" / "unfinished").iterdir())
    assert written(tmp_path) == sorted(f"digits{end}" for end in ENDS)
