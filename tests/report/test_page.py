"""The page of a report: complete, self-contained and free of scripts."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from math import nan
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from ips.annotations import Outline
from ips.config import Config
from ips.errors import RunError
from ips.explain import Explanation
from ips.localisation import MEASURES, Localisation
from ips.patches import JoinedPatches, MemoryPatches
from ips.predictions import PURPOSE, TestPredictions
from ips.report.examples import make_picture
from ips.report.page import ReportContent, write_page
from ips.statistics import Interval
from tests.explain.explained import explained
from tests.report.made import EVIL, KINDS, config, made

VOID = {"img", "meta"}


class Reader(HTMLParser):
    """Follows the tags of a page: what is opened is closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def named(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(self.words)


def read_page(path: Path) -> Reader:
    """A page that is whole, needs nothing from elsewhere and runs nothing."""
    text = path.read_text(encoding="utf-8")
    page = Reader(text)
    assert text.startswith("<!doctype html>")
    assert {name for name, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object"})
    for _, attrs in page.tags:
        assert not any(key.startswith("on") or key == "style" for key in attrs)
        for key in ("src", "href"):
            assert attrs.get(key, "#").startswith(("#", "data:image/"))
    ids = {attrs["id"] for _, attrs in page.tags if "id" in attrs}
    assert {attrs["href"] for attrs in page.named("a")} == {f"#{name}" for name in ids}
    for tag in ("svg", "img"):
        for attrs in page.named(tag):
            assert attrs.get("aria-label") or attrs.get("alt") or attrs.get("aria-hidden") == "true"
    policy = next(a["content"] for a in page.named("meta") if "http-equiv" in a)
    style = re.search(r"<style>(.*)</style>", text, flags=re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert f"style-src 'sha256-{digest}'" in policy
    assert "unsafe" not in policy
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    return page


def content(
    tmp_path: Path, settings: Config, predictions: TestPredictions | None = None
) -> ReportContent:
    log = tmp_path / "metrics.csv"
    scores = [f"train_{name}" for name in settings.tasks]
    with log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "step", "loss", *scores, "lr", "seconds"])
        for epoch in (1, 2, 3):
            writer.writerow([epoch, 10 * epoch, 2 / epoch, *(epoch / 4 for _ in scores), 0.001, 40])
    return ReportContent(
        name="my run",
        config=settings,
        model={"selected patches": "M = 4", "aggregation": "cross-attention, 8 heads"},
        parameters=1234,
        train_images=200,
        log=log,
        predictions=predictions or made(settings),
        best=[],
        worst=[],
        pictures={},
        patch_classes=None,
    )


def source(name: str = "image", *, side: int = 3, patch: int = 8) -> MemoryPatches:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (side * side, 3, patch, patch), dtype=np.uint8)
    row, col = np.divmod(np.arange(side * side), side)
    coords = np.stack([col, row], axis=1) * patch
    return MemoryPatches(torch.from_numpy(pixels), coords=coords, name=name)


def explanation(
    patches: MemoryPatches, *, readout: int | None = None, names: list[str] | None = None
) -> Explanation:
    """An explanation with the highest attention at the last patch."""
    k = len(patches)
    weights = torch.arange(k, 0, -1).double()
    indices = torch.arange(k).flip(0)
    classes = None if readout is None else torch.eye(max(readout, k))[:k, :readout]
    return replace(
        explained(patches, names=names),
        indices=indices,
        coords=patches.coords[indices.numpy()],
        attention=weights / weights.sum(),
        all_attention={"grade": (weights.flip(0) / weights.sum()).numpy()},
        patch_probabilities=classes,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_shows_the_results_of_every_kind_of_task(kind: str, tmp_path: Path) -> None:
    write_page(tmp_path / "report.html", content(tmp_path, config(kind=KINDS[kind])))
    text = read_page(tmp_path / "report.html").text
    assert "ROC curve" in text
    assert ("ROC curve of each class" in text) == (kind not in ("binary", "two classes"))
    assert ("Confusion matrix" in text) == (kind != "multilabel")
    assert ("false positives" in text) == (kind == "multilabel")
    for word in (
        "Expected calibration error",
        "2 min 0 s for 3 epochs",
        "1,234",
        "24 images",
        PURPOSE,
    ):
        assert word in text


def test_names_are_escaped(tmp_path: Path) -> None:
    names = [EVIL, "b", "c"]
    settings = config(**{EVIL: {"kind": "multiclass", "classes": 3, "names": names}})
    evil = content(tmp_path, settings)
    images = [EVIL] * len(evil.predictions.images)
    evil = replace(
        evil,
        name=EVIL,
        predictions=replace(evil.predictions, images=images),
        best=[0],
        worst=[0],
        pictures={0: make_picture(explanation(source(EVIL), readout=3))},
        patch_classes=names,
    )
    write_page(tmp_path / "report.html", evil)
    page = read_page(tmp_path / "report.html")
    assert page.named("img") == []
    for heading in ("h1", "h4"):
        assert f"<{heading}>{EVIL}" not in (tmp_path / "report.html").read_text()
    assert page.words.count(EVIL) >= 6  # shown as it was written


def test_pictures_mark_the_selected_patches(tmp_path: Path) -> None:
    settings = config(grade=KINDS["two classes"])
    patches = source()
    plain = make_picture(explanation(patches))
    read = make_picture(explanation(patches, readout=2))
    (view,) = plain.views
    assert view.size == (24, 24)
    assert view.share == pytest.approx(1)
    assert view.boxes[0].tolist() == [16, 16, 8, 8]  # the last patch, bottom right
    assert plain.labels is None
    assert read.labels is not None
    assert (len(plain.crops), plain.selected, plain.patches) == (4, 9, 9)
    for picture, word in (
        (plain, "from dark blue (low) to yellow (high)"),
        (read, "tinted by their predicted class"),
    ):
        pictures = {1: picture, 2: picture}
        shown = replace(content(tmp_path, settings), best=[1], worst=[2], pictures=pictures)
        write_page(tmp_path / "report.html", shown)
        page = read_page(tmp_path / "report.html")
        assert word in page.text
        assert len(page.named("image")) == 2 * 5
        assert "9 of 9 patches selected" in page.text
        assert "highest attention of 9 patches: 20 %, 1.8 x an even share" in page.text
        assert "nearly uniform" not in page.text


def test_a_patient_has_a_picture_of_each_image(tmp_path: Path) -> None:
    names = [f"{number} {EVIL}" for number in range(8)]
    bag = JoinedPatches([source(name) for name in names], name="p1")
    picture = make_picture(explained(bag, keep=20))
    assert [view.name for view in picture.views] == sorted(view.name for view in picture.views)
    assert (len(picture.views), picture.images, len(picture.crops)) == (6, 8, 4)
    shares = sorted(explained(bag, keep=20).shares, reverse=True)
    assert sorted((view.share for view in picture.views), reverse=True) == shares[:6]
    whole = explained(bag, keep=20)
    for view in picture.views:  # patches are drawn on their own image, in order of attention
        number = names.index(view.name)
        assert view.rows == np.flatnonzero(whole.part_numbers == number).tolist()
        assert view.boxes[:, :2].tolist() == whole.coords[view.rows].tolist()
    settings = config(grade=KINDS["two classes"])
    shown = replace(content(tmp_path, settings), best=[1], worst=[], pictures={1: picture})
    write_page(tmp_path / "report.html", shown)
    page = read_page(tmp_path / "report.html")
    assert len(page.named("image")) == 6 + 4
    assert "6 of 8 images are shown, those with the most attention" in page.text
    assert page.named("img") == []
    text = f"{picture.views[0].name}"[:10]
    assert any(word.startswith(text) and word.endswith(" %") for word in page.words)
    numbers = [row for view in picture.views for row, _, _ in view.number_spots(4)]
    assert set(numbers) <= {0, 1, 2, 3}


def test_nearly_uniform_attention_is_called_so(tmp_path: Path) -> None:
    even = replace(explanation(source()), all_attention={"grade": np.full(9, 1 / 9)})
    pictures = {1: make_picture(even), 2: make_picture(explanation(source()))}
    settings = config(grade=KINDS["two classes"])
    shown = replace(content(tmp_path, settings), best=[1], worst=[2], pictures=pictures)
    write_page(tmp_path / "report.html", shown)
    page = read_page(tmp_path / "report.html")
    assert "Attention is nearly uniform in 1 of these 2 images" in page.text
    words = "attention is nearly uniform, highest of 9 patches: 11.1 %, 1.0 x an even share"
    assert page.text.count(words) == 1
    assert [attrs["class"] for attrs in page.named("p") if attrs.get("class") == "badge"] == [
        "badge"
    ]
    assert "1.0 x" in page.words  # attention of a patch beside its share


@pytest.mark.parametrize("skill", [0.0, 8.0])
def test_scores_no_better_than_the_majority_answer_are_called_so(
    tmp_path: Path, skill: float
) -> None:
    settings = config(grade=KINDS["two classes"])
    predictions = made(settings, skill=skill)
    write_page(tmp_path / "report.html", content(tmp_path, settings, predictions))
    page = read_page(tmp_path / "report.html")
    assert ("no better than always answering" in page.text) == (skill == 0)
    assert page.text.count("majority answer") == 1
    assert len([line for line in page.named("line") if line["class"] == "mark"]) == 2


def test_pictures_and_page_stay_small(tmp_path: Path) -> None:
    """Noise, which no format makes smaller, in images as large as they get."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (16, 3, 256, 256), dtype=np.uint8))
    row, col = np.divmod(np.arange(16), 4)
    patches = MemoryPatches(pixels, coords=np.stack([col, row], axis=1) * 256)
    picture = make_picture(explanation(patches, readout=4))
    assert max(picture.views[0].size) <= 360
    many = dict.fromkeys(range(4), picture)
    shown = replace(
        content(tmp_path, config(**KINDS)), best=list(many), worst=list(many), pictures=many
    )
    write_page(tmp_path / "report.html", shown)
    assert (tmp_path / "report.html").stat().st_size < 5e6


def test_features_without_their_slide_have_a_canvas(tmp_path: Path) -> None:
    picture = make_picture(explanation(MemoryPatches(torch.zeros(9, 8))))
    assert picture.canvas
    assert picture.crops == []
    shown = replace(
        content(tmp_path, config(grade=KINDS["binary"])), best=[0], pictures={0: picture}
    )
    write_page(tmp_path / "report.html", shown)
    page = read_page(tmp_path / "report.html")
    assert "The slide of 1 image was not found: attention is drawn there on a canvas" in page.text
    assert len(page.named("image")) == 1
    assert "No image was predicted wrongly." in page.text


def decoded(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def test_annotations_are_drawn_on_a_picture() -> None:
    pixels = torch.full((1, 3, 100, 100), 255, dtype=torch.uint8)
    seen = explanation(MemoryPatches(pixels))
    outline = Outline("polygon", [[(20, 30), (80, 30), (80, 90)]], "", "", None)
    pictures = [make_picture(e).views[0].image for e in (seen, replace(seen, outlines=[outline]))]
    plain, drawn = (np.asarray(decoded(picture).convert("L")) for picture in pictures)
    assert plain.min() > 200
    assert drawn[30, 50] < 60
    assert drawn[50, 80] < 60
    assert drawn[60, 30] > 200


def test_many_classes_are_listed_by_their_confusions(tmp_path: Path) -> None:
    settings = config(kind={"kind": "multiclass", "classes": 300})
    predictions = made(settings, count=50, skill=4.0)
    write_page(tmp_path / "report.html", content(tmp_path, settings, predictions))
    assert "Most frequent confusions among 300 classes" in read_page(tmp_path / "report.html").text
    assert (tmp_path / "report.html").stat().st_size < 2e5


def test_one_test_image_is_enough(tmp_path: Path) -> None:
    settings = config(grade=KINDS["binary"], parts=KINDS["multilabel"])
    write_page(tmp_path / "report.html", content(tmp_path, settings, made(settings, count=1)))
    text = read_page(tmp_path / "report.html").text
    assert "No ROC curve: only class" in text
    assert "undefined" in text
    assert "nan" not in text


def test_a_missing_log_is_allowed_and_a_broken_log_is_an_error(tmp_path: Path) -> None:
    settings = config(grade=KINDS["binary"])
    bare = content(tmp_path, settings)
    bare.log.unlink()
    write_page(tmp_path / "report.html", bare)
    assert "no log of the training" in read_page(tmp_path / "report.html").text
    bare.log.write_text("epoch,loss,seconds\n1,high,2\n")
    with pytest.raises(RunError, match=r"metrics\.csv: a value is not a number"):
        write_page(tmp_path / "report.html", bare)
    bare.log.write_text("epoch,seconds\n1,2\n")
    with pytest.raises(RunError, match=r"metrics\.csv: has no column loss"):
        write_page(tmp_path / "report.html", bare)


def test_peak_memory_is_shown_if_the_log_has_it(tmp_path: Path) -> None:
    settings = config(grade=KINDS["binary"])
    shown = content(tmp_path, settings)
    header, *rows = shown.log.read_text().splitlines()
    lines = [
        f"{header},peak_mb",
        f"{rows[0]},",
        *(f"{row},{812 + i}" for i, row in enumerate(rows[1:])),
    ]
    shown.log.write_text("\n".join(lines))
    write_page(tmp_path / "report.html", shown)
    assert "813 MB" in read_page(tmp_path / "report.html").text


def test_a_section_shows_where_attention_is(tmp_path: Path) -> None:
    settings = config(sign=KINDS["multiclass"])
    file = tmp_path / "report.html"
    write_page(file, content(tmp_path, settings))
    page = read_page(file)
    assert "Where attention is" not in page.text  # no objects are known
    score, none = Interval(0.75, 0.5, 0.9), Interval(nan, nan, nan)
    measures = dict.fromkeys(MEASURES, score) | {"recall": none}
    result = Localisation(3, 4, 0.0125, measures, (0, 0.25, 0.25, 0.5, 0.75, 1))
    located = replace(content(tmp_path, settings), localisation={"sign": result, EVIL: result})
    write_page(file, located)
    page = read_page(file)
    assert "not a detection method" in page.text
    assert "top patch on an object" in page.text
    assert f"sign, {EVIL}: 4 objects on 3 images" in page.text
    label = "Objects found against false positives per image, mean: sign 0.750"
    (chart,) = [a for a in page.named("svg") if a.get("aria-label", "").startswith(label)]
    assert chart["class"] == "chart"
    assert page.words.count("–") == 2  # the recall of both tasks
