"""Which images the viewer predicts, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ips.explain import Explanation
from ips.predictor import Predictor
from ips.viewer import Library, find_images
from ips.viewer.library import Queue
from tests.viewer.asking import ask
from tests.viewer.opening import opened, settled
from tests.viewer.viewer_files import picture, small_pictures


def test_a_finished_prediction_is_not_preempted(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = small_pictures(tmp_path, "ab")
    predict, order = Predictor.predict, list[str]()

    def wanting(
        self: Predictor,
        image: Path,
        *,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> Explanation:
        order.append(image.stem)
        found = predict(self, image, **options)
        images.predict_next(list(images.entries.values())[1])
        assert progress is not None
        progress(found.patches, found.patches)
        return found

    monkeypatch.setattr(Predictor, "predict", wanting)
    with opened(predictor, run, paths) as (images, _):
        images.start()
        settled(images)
    assert order == ["a", "b"]


def hold_first(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], threading.Event]:
    """Let the first prediction last until it is interrupted; return the order, and its begin."""
    predict, order, begun = Predictor.predict, list[str](), threading.Event()

    def slow(
        self: Predictor,
        image: Path,
        *,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> Explanation:
        order.append(image.stem)
        assert progress is not None
        if order == ["a"]:
            begun.set()
            while True:  # until it is interrupted
                progress(1, 2)
        return predict(self, image, progress=progress, **options)

    monkeypatch.setattr(Predictor, "predict", slow)
    return order, begun


def test_the_image_on_the_page_goes_first(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = small_pictures(tmp_path, "abc")
    order, begun = hold_first(monkeypatch)
    with opened(predictor, run, paths) as (images, app):
        images.set_queue(Queue(all=True))
        images.start()
        assert begun.wait(30)
        third = images.rows()[1][2]["id"]
        assert ask(app, f"api/images/{third}").json == {}
        assert {row["state"] for row in settled(images).values()} == {"ready"}
    assert order == ["a", "c", "a", "b"]


def wait_for(images: Library, condition: Callable[[], bool]) -> None:
    with images._changed:
        assert images._changed.wait_for(condition, 30)


def test_only_the_image_on_the_page_is_predicted_until_all_are_asked_for(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    paths = small_pictures(tmp_path, "abc")
    with opened(predictor, run, paths) as (images, app):
        a, b, c = images.entries.values()
        images.start()
        ask(app, f"api/images/{b.id}")
        wait_for(images, lambda: b.state == "ready" and not images.status()["busy"])
        assert (a.state, c.state) == ("waiting", "waiting")
        assert ask(app, "api/images").json["queue"] == {
            "all": False,
            "paused": False,
            "busy": False,
        }
        assert ask(app, "api/queue?all=true").json == {"all": True, "paused": False, "busy": True}
        wait_for(images, lambda: a.state == c.state == "ready")
        assert not ask(app, "api/images").json["queue"]["busy"]
        assert ask(app, "api/queue?all=maybe").status == 400


def test_a_pause_interrupts_the_prediction_and_what_follows_resumes_it(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = small_pictures(tmp_path, "ab")
    order, begun = hold_first(monkeypatch)
    with opened(predictor, run, paths) as (images, app):
        a, b = images.entries.values()
        images.start()
        ask(app, f"api/images/{a.id}")
        assert begun.wait(30)
        ask(app, "api/queue?paused=true&all=true")
        wait_for(images, lambda: a.state == "waiting")
        ask(app, f"api/images/{b.id}")  # not while it is paused
        assert images.status() == {"all": True, "paused": True, "busy": False}
        assert order == ["a"]
        ask(app, "api/queue?all=true")
        wait_for(images, lambda: a.state == b.state == "ready")
    assert order == ["a", "b", "a"]


def test_a_failed_prediction_does_not_stop_the_others(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, name in enumerate("ab"):
        Image.fromarray(picture(100, 150, seed=seed)).save(tmp_path / f"{name}.png")
    predict = Predictor.predict

    def failing(self: Predictor, image: Path, **options: Any) -> Explanation:
        if image.stem == "a":
            raise RuntimeError("out of memory")
        return predict(self, image, **options)

    monkeypatch.setattr(Predictor, "predict", failing)
    with opened(predictor, run, find_images([tmp_path], predictor.config)) as (images, app):
        images.start()
        rows = settled(images)
        assert (
            rows["a.png"]["message"] == "a.png: the prediction failed (RuntimeError: out of memory)"
        )
        assert rows["b.png"]["state"] == "ready"
        assert (
            ask(app, f"tiles/{rows['a.png']['id']}/0/0/0/0").status == 200
        )  # it can still be viewed
