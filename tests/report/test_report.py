"""The report of a run: one page, whole, safe and the same numbers as the test."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ips.config import Config, parse_config
from ips.errors import RunError
from ips.models import Prediction
from ips.patches import MemoryPatches
from ips.report.answers import (
    Answers,
    TaskAnswers,
    read_answers,
    write_answers,
)
from ips.report.charts import ticks
from ips.report.content import Example, Run, write_report
from ips.report.html import el, join
from ips.report.pictures import look
from ips.report.tasks import measures
from ips.tasks import Task, build_tasks

EVIL = "<script>alert('x')</script>\"><img src=x onerror=y>"
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


def config(**tasks: dict[str, Any]) -> Config:
    return parse_config({"tasks": tasks}, source="test")


def made(settings: Config, *, count: int = 24, skill: float = 2.0, seed: int = 0) -> Answers:
    """Answers of a model that is right more often than not."""
    rng = np.random.default_rng(seed)
    tasks = []
    for name, task in build_tasks(settings.tasks).items():
        classes = task.class_names
        truth = rng.random((count, len(classes))) < 0.3
        if task.kind != "multilabel":
            truth = np.arange(len(classes)) == rng.integers(len(classes), size=(count, 1))
        logits = skill * truth + rng.normal(size=truth.shape)
        p = 1 / (1 + np.exp(1 - logits))
        if task.kind != "multilabel":
            p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        tasks.append(TaskAnswers(name, task, truth, p))
    return Answers([f"image {i}" for i in range(count)], tasks)


def run(tmp_path: Path, settings: Config, answers: Answers | None = None) -> Run:
    log = tmp_path / "metrics.csv"
    scores = [f"train_{name}" for name in settings.tasks]
    with log.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "step", "loss", *scores, "lr", "seconds"])
        for epoch in (1, 2, 3):
            writer.writerow([epoch, 10 * epoch, 2 / epoch, *(epoch / 4 for _ in scores), 0.001, 40])
    return Run(
        name="tried",
        config=settings,
        parameters=1234,
        images=200,
        log=log,
        answers=answers or made(settings),
        best=[],
        worst=[],
        readout=None,
    )


def source(name: str = "image", *, side: int = 3, patch: int = 8) -> MemoryPatches:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (side * side, 3, patch, patch), dtype=np.uint8)
    row, col = np.divmod(np.arange(side * side), side)
    coords = np.stack([col, row], axis=1) * patch
    return MemoryPatches(torch.from_numpy(pixels), coords=coords, name=name)


def seen(patches: MemoryPatches, *, readout: int | None = None) -> Prediction:
    """A look at the last patch most."""
    k = len(patches)
    weights = torch.arange(k, 0, -1).double()
    indices = torch.arange(k).flip(0)
    classes = None if readout is None else torch.eye(max(readout, k))[:k, :readout]
    return Prediction(
        name=patches.name,
        logits={},
        probabilities={},
        indices=indices,
        coords=patches.coords[indices.numpy()],
        extent=patches.extent,
        attention=weights / weights.sum(),
        task_attention={},
        patch_probabilities=classes,
        patches=len(patches),
    )


KINDS = {
    "multiclass": {"kind": "multiclass", "classes": 4},
    "two classes": {"kind": "multiclass", "classes": 2, "names": ["cat", "dog"]},
    "multilabel": {"kind": "multilabel", "classes": 3},
    "binary": {"kind": "binary"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_task_has_its_page(kind: str, tmp_path: Path) -> None:
    write_report(tmp_path / "report.html", run(tmp_path, config(kind=KINDS[kind])))
    text = read_page(tmp_path / "report.html").text
    assert ("ROC curve" in text) == (kind in ("binary", "two classes"))
    assert ("Confusion matrix" in text) == (kind != "multilabel")
    assert ("invented" in text) == (kind == "multilabel")
    for word in ("Expected calibration error", "2 min 0 s for 3 epochs", "1,234", "24 images"):
        assert word in text


def test_scores_are_those_of_torchmetrics() -> None:
    settings = config(**KINDS)
    for task in made(settings, count=60).tasks:
        for measure in measures(task, first=None):
            score: Any = measure.key
            metric = replace(task.task, score=score).metric()
            said, truth = torch.from_numpy(task.probabilities), torch.from_numpy(task.truth)
            if task.kind == "binary":
                said, truth = said[:, 1], truth[:, 1]
            elif task.kind == "multiclass":
                truth = truth.int().argmax(dim=1)
            metric.update(said.float(), truth.long())
            assert measure.score.value == pytest.approx(float(metric.compute()), abs=1e-5)
            assert measure.score.low < measure.score.value < measure.score.high


def test_the_score_that_was_asked_for_comes_first() -> None:
    task = made(config(a=KINDS["multilabel"])).tasks[0]
    assert [m.key for m in measures(task, first=None)] == ["exact-match", "accuracy", "auc"]
    assert measures(task, first="auc")[0].key == "auc"


def test_nothing_that_a_person_wrote_becomes_html(tmp_path: Path) -> None:
    names = [EVIL, "b", "c"]
    settings = config(**{EVIL: {"kind": "multiclass", "classes": 3, "names": names}})
    evil = run(tmp_path, settings)
    images = [EVIL] * len(evil.answers.images)
    patches = source(EVIL)
    example = Example(0, look(patches, seen(patches, readout=3)))
    evil = replace(
        evil,
        name=EVIL,
        answers=replace(evil.answers, images=images),
        best=[example],
        worst=[example],
        readout=names,
    )
    write_report(tmp_path / "report.html", evil)
    page = read_page(tmp_path / "report.html")
    assert page.named("img") == []
    for heading in ("h1", "h4"):
        assert f"<{heading}>{EVIL}" not in (tmp_path / "report.html").read_text()
    assert page.words.count(EVIL) >= 6  # shown as it was written


def test_pictures_show_where_it_looked(tmp_path: Path) -> None:
    settings = config(grade=KINDS["two classes"])
    patches = source()
    plain, read = look(patches, seen(patches)), look(patches, seen(patches, readout=2))
    assert plain.size == (24, 24)
    assert plain.marks[0].tolist() == [16, 16, 8, 8]  # the last patch, bottom right
    assert plain.labels is None
    assert read.labels is not None
    assert (len(plain.crops), plain.kept, plain.patches) == (4, 9, 9)
    for sight, word in ((plain, "dark blue to yellow"), (read, "tinted by the class")):
        shown = replace(
            run(tmp_path, settings), best=[Example(1, sight)], worst=[Example(2, sight)]
        )
        write_report(tmp_path / "report.html", shown)
        page = read_page(tmp_path / "report.html")
        assert word in page.text
        assert len(page.named("image")) == 2 * 5
        assert "9 of 9 patches kept" in page.text


def test_pictures_and_page_stay_small(tmp_path: Path) -> None:
    """Noise, which no format makes smaller, in images as large as they get."""
    rng = np.random.default_rng(0)
    pixels = torch.from_numpy(rng.integers(0, 256, (16, 3, 256, 256), dtype=np.uint8))
    row, col = np.divmod(np.arange(16), 4)
    patches = MemoryPatches(pixels, coords=np.stack([col, row], axis=1) * 256)
    sight = look(patches, seen(patches, readout=4))
    assert max(sight.size) <= 360
    many = [Example(i, sight) for i in range(4)]
    shown = replace(run(tmp_path, config(**KINDS)), best=many, worst=many)
    write_report(tmp_path / "report.html", shown)
    assert (tmp_path / "report.html").stat().st_size < 5e6


def test_features_have_no_picture(tmp_path: Path) -> None:
    shown = replace(run(tmp_path, config(grade=KINDS["binary"])), best=[Example(0, None)])
    write_report(tmp_path / "report.html", shown)
    page = read_page(tmp_path / "report.html")
    assert "no picture" in page.text
    assert page.named("image") == []
    assert "No image was answered wrong." in page.text


def test_very_many_classes_are_told_by_their_confusions(tmp_path: Path) -> None:
    settings = config(kind={"kind": "multiclass", "classes": 300})
    answers = made(settings, count=50, skill=4.0)
    write_report(tmp_path / "report.html", run(tmp_path, settings, answers))
    assert "Commonest confusions among 300 classes" in read_page(tmp_path / "report.html").text
    assert (tmp_path / "report.html").stat().st_size < 2e5


def test_one_test_image_of_one_class_is_enough(tmp_path: Path) -> None:
    settings = config(grade=KINDS["binary"], parts=KINDS["multilabel"])
    write_report(tmp_path / "report.html", run(tmp_path, settings, made(settings, count=1)))
    text = read_page(tmp_path / "report.html").text
    assert "all test images are of one class" in text
    assert "nan" not in text


def test_a_run_without_a_log_is_reported_and_a_broken_one_named(tmp_path: Path) -> None:
    settings = config(grade=KINDS["binary"])
    bare = run(tmp_path, settings)
    bare.log.unlink()
    write_report(tmp_path / "report.html", bare)
    assert "no log of its training" in read_page(tmp_path / "report.html").text
    bare.log.write_text("epoch,loss,seconds\n1,high,2\n")
    with pytest.raises(RunError, match=r"metrics\.csv: a value in it is no number"):
        write_report(tmp_path / "report.html", bare)
    bare.log.write_text("epoch,seconds\n1,2\n")
    with pytest.raises(RunError, match=r"metrics\.csv: has no column loss"):
        write_report(tmp_path / "report.html", bare)


def test_peak_memory_is_told_where_it_was_written_down(tmp_path: Path) -> None:
    settings = config(grade=KINDS["binary"])
    shown = run(tmp_path, settings)
    header, *rows = shown.log.read_text().splitlines()
    lines = [
        f"{header},peak_mb",
        f"{rows[0]},",
        *(f"{row},{812 + i}" for i, row in enumerate(rows[1:])),
    ]
    shown.log.write_text("\n".join(lines))
    write_report(tmp_path / "report.html", shown)
    assert "813 MB" in read_page(tmp_path / "report.html").text


def test_best_are_right_and_sure_and_worst_wrong_and_sure() -> None:
    p = np.array([[0.6, 0.4], [0.9, 0.1], [0.3, 0.7], [0.01, 0.99]])
    truth = np.array([[1, 0]] * 4) == 1
    answers = Answers(list("abcd"), [TaskAnswers("t", Task("multiclass", 2), truth, p)])
    assert answers.ranked(5) == ([1, 0], [3, 2])
    assert answers.ranked(1) == ([1], [3])
    labels = TaskAnswers("l", Task("multilabel", 2), truth, np.array([[0.9, 0.8]] * 4))
    both = replace(answers, tasks=[*answers.tasks, labels])
    assert both.ranked(4) == ([], [3, 2, 0, 1])  # no image is right in both


def test_answers_come_back_from_their_file_as_they_were(tmp_path: Path) -> None:
    names = ['a,"b"', "c\nd", EVIL]
    settings = config(kind={"kind": "multiclass", "classes": 3, "names": names}, **KINDS)
    answers = made(settings, count=5)
    write_answers(tmp_path / "predictions.csv", answers)
    back = read_answers(tmp_path / "predictions.csv", settings)
    assert back is not None
    assert back.images == answers.images
    for a, b in zip(answers.tasks, back.tasks, strict=True):
        assert (a.name, a.task) == (b.name, b.task)
        assert np.array_equal(a.truth, b.truth)
        assert np.allclose(a.probabilities, b.probabilities, rtol=1e-8)


def test_a_file_of_other_answers_is_not_read(tmp_path: Path) -> None:
    path, settings = tmp_path / "predictions.csv", config(a=KINDS["binary"])
    assert read_answers(path, settings) is None
    write_answers(path, made(settings, count=3))
    assert read_answers(path, settings) is not None
    assert read_answers(path, config(b=KINDS["binary"])) is None
    assert read_answers(path, config(a=KINDS["two classes"])) is None
    whole = path.read_text()
    for text in (whole.rsplit("\n", 2)[0], whole.replace("0.", "x.", 1), "", "a,b\n", "\0"):
        path.write_text(text)
        assert read_answers(path, settings) is None


def test_elements_escape_what_is_not_html() -> None:
    assert el("b", "<i>", el("i", "&"), title='"') == '<b title="&quot;">&lt;i&gt;<i>&amp;</i></b>'
    assert el("meta", charset="utf-8", content=None) == '<meta charset="utf-8">'
    assert join(["a<", el("i")]) == "a&lt;<i></i>"


def test_ticks_are_round_numbers() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(1, 3, count=6, whole=True) == [1, 2, 3]
    assert ticks(2.03, 2.21) == [2.05, 2.1, 2.15, 2.2]
