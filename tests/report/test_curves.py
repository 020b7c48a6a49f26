"""Training curves of every log that a run can leave."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as PILImage

from ips.errors import RunError
from ips.explain.colours import shortened
from ips.explain.figures.page import Page
from ips.report.curves import draw_curves, spread

HEAD = "epoch,step,loss,train_majority,train_multi,lr,seconds\n"


def log(folder: Path, text: str) -> Path:
    path = folder / "metrics.csv"
    path.write_text(text, errors="surrogateescape")
    return path


@pytest.mark.parametrize(
    "rows",
    [
        "1,3,2.7,0.1,0,0.001,5\n",
        "1,3,2.7,0.1,0,0.001,5\n2,6,2.1,0.5,0.3,0.0005,5\n",
        "1,3,nan,nan,0.2,0,5\n2,6,nan,nan,0.3,0,5\n",
    ],
    ids=["one epoch", "two epochs", "nothing but nan"],
)
def test_the_figure_is_the_only_new_file(tmp_path: Path, rows: str) -> None:
    picture = tmp_path / "figures" / "training.png"
    draw_curves(log(tmp_path, HEAD + rows), picture)
    with PILImage.open(picture) as image:
        assert image.size == (1500, 600)
    assert list(picture.parent.iterdir()) == [picture]


def test_validation_scores_are_drawn_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages: list[Page] = []
    monkeypatch.setattr(Page, "save", lambda page, path: pages.append(page))
    text = "epoch,loss,lr,train_a,train_b,validation_a\n1,2,0.1,0.2,0.3,0.4\n2,1,0.1,0.5,0.6,0.7\n"
    draw_curves(log(tmp_path, text), tmp_path / "a.png")
    figure = pages[0].figure
    lines = [np.asarray(line.get_ydata()).tolist() for axes in figure.axes for line in axes.lines]
    assert [line for line in lines if max(line) < 1 and line != [0.1, 0.1]] == [
        [0.2, 0.5],
        [0.4, 0.7],
        [0.3, 0.6],
    ]
    words = [text.get_text() for text in figure.texts]
    assert {"a  0.70", "b  0.60"} <= set(words)


def test_a_failed_write_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"old")
    page = Page(1, 1)

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(page.figure, "savefig", fail)
    with pytest.raises(OSError, match="full"):
        page.save(picture)
    assert picture.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, "no epochs"),
        ("epoch,loss\n1,2\n", "no column lr"),
        (HEAD + "1,3,2.7,high,0,0.001,5\n", "not a number"),
        (HEAD + "1,3,2.7\n", "not a number"),
        (HEAD + "nan,3,2.7,0,0,0.001,5\n", "not a number .*delete it"),
        (HEAD + f"{'x' * 3000},3,2.7,0,0,0.001,5\n", "not a number .{,250}$"),
        (HEAD + "1,\udcff\n", r"metrics\.csv: cannot be read"),
        (HEAD + "1," + "3" * 200_000 + "\n", r"metrics\.csv: cannot be read"),
    ],
)
def test_an_invalid_log_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        draw_curves(log(tmp_path, text), tmp_path / "a.png")


@pytest.mark.parametrize(
    "data", [b"epoch,loss,lr\n1,\xff,1\n", b"epoch,loss,lr\n1,1,1,1\n", b"epoch\n" + b"1" * 200_000]
)
def test_a_damaged_log_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "metrics.csv").write_bytes(data)
    with pytest.raises(RunError, match=r"metrics\.csv: "):
        draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")


def test_a_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no epochs"):
        draw_curves(tmp_path / "metrics.csv", tmp_path / "a.png")


def test_labels_are_spread_apart_and_stay_inside() -> None:
    values = [0.0, 0.0, 0.5, 0.97, 0.98, 1.0]
    placed = spread(values, apart=0.1, low=0.0, high=1.0)
    gaps = [b - a for a, b in pairwise(placed)]
    assert min(gaps) >= 0.1 - 1e-9
    assert placed[0] >= 0
    assert placed[-1] <= 1
    assert placed[2] == 0.5
    assert spread([], apart=0.1, low=0.0, high=1.0) == []


def test_too_many_labels_share_the_space() -> None:
    placed = spread([0.5] * 21, apart=0.1, low=0.0, high=1.0)
    assert placed == pytest.approx([i / 20 for i in range(21)])


def test_long_text_is_shortened() -> None:
    assert shortened("majority", 8) == "majority"
    assert shortened("majority", 5) == "majo…"
