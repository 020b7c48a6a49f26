"""The scripts of examples/ run as the documentation calls them, at tiny size."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from examples import own_images, watch_start, whole_slides
from ips.data.synthetic.tissue_slides import (
    SMALLEST_SIDE,
    load_clusters,
    write_tissue_slides,
)
from ips.images import open_image
from tests.command import Outcome

PHOTOGRAPHS = 43  # the fewest that include every odd kind of file
SIZE = (24, 16)

Run = Callable[..., None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(script: ModuleType, *words: object) -> None:
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, words)])
        script.main()

    return run


def rows(table: Path) -> list[dict[str, str]]:
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def pixels(path: Path) -> np.ndarray:
    with open_image(path) as image:
        return image.read_region((0, 0), 0, image.dimensions).astype(float)


@pytest.fixture
def gtsdb(tmp_path: Path) -> Path:
    """Photographs in the layout of GTSDB; two show a blue sign, two others a speed limit."""
    folder = tmp_path / "gtsdb"
    folder.mkdir()
    x = np.linspace(0, 255, SIZE[0]).astype(np.uint8)
    for number in range(PHOTOGRAPHS):
        picture = np.full((*SIZE[::-1], 3), 5 * number, np.uint8)
        picture[..., 0] = x
        Image.fromarray(picture).save(folder / f"{number:05d}.jpg", quality=95)
    signs = {0: [38, 14], 1: [33], 2: [8, 1], 3: [6], 4: [14], 5: [0]}
    lines = [f"{n:05d}.jpg;1;2;9;9;{kind}" for n, kinds in signs.items() for kind in kinds]
    (folder / "gt.txt").write_text("\n".join(lines))
    return folder


def test_documents_are_in_a_folder_for_each_label(run: Run, tmp_path: Path) -> None:
    run(own_images, "documents", tmp_path, "--count", 2)
    pages = sorted(tmp_path.rglob("*.*"))
    assert [page.parent.name for page in pages] == ["signed", "unsigned"]
    for page in pages:
        letter = pixels(page)
        assert letter.shape == (1754, 1240, 1)
        assert 0.005 < (letter < 128).mean() < 0.2  # dark ink on light paper


def test_every_patient_has_up_to_three_slides(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth: dict[str, bool] = {}

    def draw_small(folder: Path, *, side: int, **options: Any) -> None:
        write_tissue_slides(folder, side=SMALLEST_SIDE, **options)
        for path in (folder / "truth").iterdir():
            truth[path.stem] = bool(load_clusters(path))

    monkeypatch.setattr(own_images, "write_tissue_slides", draw_small)
    run(own_images, "slides", tmp_path, "--count", 8)
    table = rows(tmp_path / "biopsies.csv")
    assert Counter((row["patient"], row["finding"]) for row in table) == {
        ("P000", "normal"): 3,
        ("P001", "normal"): 1,
        ("P100", "tumor"): 3,
        ("P101", "tumor"): 1,
    }
    for row in table:
        with open_image(tmp_path / row["slide"]) as slide:
            assert slide.mpp == pytest.approx((0.5, 0.5))
        assert truth[Path(row["slide"]).stem] == (row["finding"] == "tumor")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["biopsies.csv", "slides"]


def test_photographs_are_stored_in_several_ways(run: Run, tmp_path: Path, gtsdb: Path) -> None:
    folder = tmp_path / "roads"
    run(own_images, "photographs", folder, "--gtsdb", gtsdb, "--count", PHOTOGRAPHS)
    table = rows(folder / "roads.csv")
    assert [row["verdict"] for row in table] == ["blue sign"] * 2 + ["none"] * (PHOTOGRAPHS - 2)
    drives = Counter(row["drive"] for row in table)
    assert drives == {"d00": 10, "d01": 10, "d02": 10, "d03": 10, "d04": 3}
    for row in table:
        stored = pixels(folder / row["filename"])
        original = pixels(gtsdb / f"{Path(row['filename']).stem}.jpg")
        if stored.shape[2] == 1:
            original = original.mean(axis=2, keepdims=True)
        assert stored.shape == original.shape  # also if the file is rotated
        assert np.abs(stored - original).mean() < 6
    modes = Counter(
        mode_of(folder / row["filename"]) for row in table if row["filename"] != "00035.tif"
    )
    assert modes == {"RGB": PHOTOGRAPHS - 5, "L": 1, "P": 1, "CMYK": 1, "RGBA": 1}
    with open_image(folder / "00035.tif") as deep, open_image(folder / "00042.jpg") as rotated:
        assert (deep.bits, rotated.orientation) == (16, 6)


def test_notebooks_are_stored_without_results() -> None:
    notebooks = sorted(Path(own_images.__file__).parent.glob("*.ipynb"))
    assert [path.stem for path in notebooks] == ["own_images", "slides"]
    for path in notebooks:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None
            if cell["cell_type"] == "code":
                compile("".join(cell["source"]), path.name, "exec")


def mode_of(path: Path) -> str:
    with Image.open(path) as picture:
        return picture.mode


def test_speed_limits_are_labels_of_the_same_photographs(
    run: Run, tmp_path: Path, gtsdb: Path
) -> None:
    run(own_images, "limits", tmp_path / "limits", "--gtsdb", gtsdb, "--count", 6)
    table = rows(tmp_path / "limits/limits.csv")
    assert [row["limit"] for row in table] == ["none", "none", "30", "none", "none", "20"]
    for row in table:
        copy = tmp_path / "limits" / row["filename"]
        assert copy.read_bytes() == (gtsdb / row["filename"]).read_bytes()


@pytest.mark.parametrize("kind", ["photographs", "limits"])
def test_photographs_need_their_source(
    run: Run, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(own_images, kind, tmp_path / "x")
    assert f"{kind} needs --gtsdb FOLDER" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_whole_slides_from_drawing_to_attention(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(*words: object) -> float:
        small = ["--batch", 8, "--patches-per-slide", 2] if words[0] == "pretrain" else []
        outcome = Outcome(*map(str, [*words, *small]))
        assert outcome.code == 0, outcome.err
        return 0.0

    monkeypatch.setattr(whole_slides, "command", command)  # in this process
    small = ["--slides", 6, "--side", 1024, "--epochs", 1, "--pretrain-epochs", 1, "--seeds", 1]
    run(whole_slides, "--folder", tmp_path, *small)
    assert list((tmp_path / "figures").glob("*-overlay.png"))
    summary = json.loads((tmp_path / "summary.json").read_text())
    for name in ("byol", "untrained"):
        assert len(summary[name]["runs"]) == 1
        mean = summary[name]["mean"]
        assert {"auc", "average precision", "chance level"} <= set(mean)
        assert all(0 <= value <= 1 for value in mean.values())


def test_the_start_of_a_training_is_watched(tmp_path: Path, run: Run) -> None:
    settings = [
        "data.train=32",
        "data.validation=8",
        "data.test=8",
        "train.epochs=2",
        "train.warmup=0.5",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    run(watch_start, "road-signs", "--out", tmp_path, "--seeds", 1, *words)
    (row,) = rows(tmp_path / "seed-0.csv")  # four steps, of which the first is noted
    shares = [float(row[name]) for name in ("kept", "top", "random", "evenness")]
    assert all(0 <= share <= 1 for share in shares)
    assert all(float(row[name]) > 0 for name in ("loss", "encoder", "embedding"))
    (summary,) = rows(tmp_path / "starts.csv")
    assert (summary["seed"], summary["starts"]) == ("0", "1")
    assert all(0 <= float(summary[f"{split}_sign"]) <= 1 for split in ("validation", "test"))
    assert pixels(tmp_path / "starts.png").std() > 0
