"""The page's server: what it answers, what it refuses, and how images are looked at."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from asking import Answered, ask
from fastapi import FastAPI
from PIL import Image
from typer.testing import CliRunner
from viewer_files import NASTY, picture

import ips.cli.view  # noqa: F401  adds the command
from ips.cli.app import app as command
from ips.errors import DataError, ImageError
from ips.explain import Explanation
from ips.predictor import Predictor, load
from ips.training.store import save_model
from ips.viewer import Library, create_app, find_images, library, showing


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return load(run)


@contextmanager
def opened(
    predictor: Predictor, run: Path, paths: list[Path], **options: Any
) -> Iterator[tuple[Library, FastAPI]]:
    images = Library(predictor, run, paths, **options)
    try:
        yield images, create_app(images, token="token")
    finally:
        images.close()


def settled(images: Library) -> dict[str, dict[str, Any]]:
    """The list by names, once nothing of it will change."""
    with images._news:
        done = images._news.wait_for(
            lambda: all(e.state in ("ready", "failed") for e in images._entries.values()), 60
        )
    assert done
    return {row["name"]: row for row in images.rows()[1]}


@pytest.fixture(scope="module")
def served(
    predictor: Predictor, run: Path, images: Path
) -> Iterator[tuple[FastAPI, dict[str, dict[str, Any]]]]:
    with opened(predictor, run, find_images([images])) as (all_of_them, app):
        all_of_them.start()
        yield app, settled(all_of_them)


Served = tuple[FastAPI, dict[str, dict[str, Any]]]


def pixels(answered: Answered) -> np.ndarray[Any, Any]:
    assert answered.status == 200
    return np.asarray(Image.open(BytesIO(answered.body)).convert("RGBA"))


def test_every_image_is_listed_and_a_broken_one_says_why(served: Served) -> None:
    app, rows = served
    assert list(rows) == ["a.png", "b.tif", f"c {NASTY}.png", "d.png"]
    assert [row["state"] for row in rows.values()] == ["ready", "ready", "ready", "failed"]
    assert "damaged" in rows["d.png"]["message"]
    said = rows["a.png"]["answers"]
    assert said[0]["names"][0] in (NASTY, "ring", "bar")
    assert 1 / 3 <= said[0]["probability"] <= 1
    assert said[1]["probability"] is None
    listed = ask(app, "api/images").json
    assert listed["images"] == list(rows.values())
    assert "path" not in listed["images"][0]
    assert ask(app, f"api/images?since={listed['change']}").json["images"] == []


def test_the_details_are_those_of_the_prediction(
    served: Served, predictor: Predictor, images: Path
) -> None:
    app, rows = served
    details = ask(app, f"api/images/{rows['b.tif']['id']}").json
    prediction = predictor.predict(images / "b.tif")
    assert (details["width"], details["height"], details["zoom"]) == (600, 900, 2)
    assert details["mpp"] == pytest.approx(0.25)
    assert details["annotated"]
    answer = details["answer"]
    assert answer["kept"] == prediction.coords.tolist()
    assert answer["count"] == len(prediction.indices)
    assert (answer["extent"], answer["patches"]) == (50, 12 * 18)
    assert dict(answer["probabilities"][0]) == pytest.approx(
        predictor.by_name("shape", prediction.probabilities["shape"]), abs=1e-5
    )
    assert np.allclose(answer["attention"][0], prediction.task_attention["shape"], atol=1e-5)
    assert np.allclose(answer["attention"][2], prediction.attention, atol=1e-5)
    assert len(answer["classes"]) == 6
    drawn = ask(app, f"api/images/{rows['b.tif']['id']}/annotations").json
    assert drawn[0]["lines"][0][0] == [50, 60]
    assert drawn[0]["name"] == "here"
    assert ask(app, f"api/images/{rows['a.png']['id']}/annotations").json == []


def test_a_broken_image_is_told_and_the_others_are_shown(served: Served) -> None:
    app, rows = served
    broken = ask(app, f"api/images/{rows['d.png']['id']}").json
    assert "d.png" in broken["error"]
    assert ask(app, f"tiles/{rows['d.png']['id']}/0/0/0").status == 422
    assert ask(app, f"tiles/{rows['a.png']['id']}/0/0/0").status == 200


@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_a_name_that_is_no_text_is_no_failure(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    path = tmp_path / os.fsdecode(b"\xff.png")
    path.write_bytes(b"nothing")
    with opened(predictor, run, [path]) as (images, app):
        number = ask(app, "api/images").json["images"][0]["id"]
        assert "known image format" in ask(app, f"api/images/{number}").json["error"]
        assert ask(app, f"tiles/{number}/0/0/0").status == 422
        images.start()
        assert next(iter(settled(images).values()))["state"] == "failed"


def test_tiles_are_the_image(served: Served) -> None:
    app, rows = served
    tile = ask(app, f"tiles/{rows['a.png']['id']}/2/1/1")
    assert tile.headers["content-type"] == "image/png"  # at the edge
    shown = pixels(tile)
    assert np.array_equal(shown[:244, :, 0], picture(700, 500)[256:500, 256:512])
    assert not shown[244:, :, 3].any()
    whole = ask(app, f"tiles/{rows['a.png']['id']}/2/0/0")
    assert whole.headers["content-type"] == "image/jpeg"


def test_attention_is_drawn_where_the_model_looks(
    served: Served, predictor: Predictor, images: Path
) -> None:
    app, rows = served
    number = rows["a.png"]["id"]
    everywhere = predictor.predict(images / "a.png").everywhere
    source = predictor.open(images / "a.png")
    for task, name in enumerate(predictor.net.tasks):
        x, y = source.coords[everywhere[name].argmax()].tolist()
        place = f"2/{(x + 25) // 256}/{(y + 25) // 256}"
        tile = pixels(ask(app, f"attention/{number}/{place}?task={task}&above=0.999"))
        assert tile[(y + 25) % 256, (x + 25) % 256, 3] == 255
        assert (tile[..., 3] > 0).sum() <= 50 * 50
    tasks = [pixels(ask(app, f"attention/{number}/0/0/0?task={t}")) for t in range(3)]
    assert not np.array_equal(tasks[0], tasks[1])
    assert not np.array_equal(tasks[1], tasks[2])
    magma = pixels(ask(app, f"attention/{number}/0/0/0?task=0&colours=magma"))
    assert not np.array_equal(tasks[0], magma)


def test_patches_are_the_image_at_their_place(served: Served) -> None:
    app, rows = served
    details = ask(app, f"api/images/{rows['a.png']['id']}").json
    padded = np.pad(picture(700, 500), ((0, 50), (0, 50)))
    for rank, (x, y) in enumerate(details["answer"]["kept"]):
        shown = pixels(ask(app, f"patches/{rows['a.png']['id']}/{rank}"))
        assert np.array_equal(shown[..., 0], padded[y : y + 50, x : x + 50])
    assert ask(app, f"patches/{rows['a.png']['id']}/6").status == 404


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("api/images/unknown", 404),
        ("api/images/unknown/annotations", 404),
        ("api/images?since=-1", 400),
        ("api/images?since=x", 400),
        ("tiles/unknown/0/0/0", 404),
        ("tiles/{}/99/0/0", 404),
        ("tiles/{}/-1/0/0", 404),
        ("tiles/{}/0/1/0", 404),
        ("tiles/{}/0/99999999999999999999999/0", 404),
        ("tiles/{}/0/0/x", 400),
        ("tiles/{}/0/0/" + "9" * 600, 414),
        ("attention/{}/0/0/0", 400),
        ("attention/{}/0/0/0?task=3", 404),
        ("attention/{}/0/0/0?task=-1", 400),
        ("attention/{}/0/0/0?task=0&above=nan", 400),
        ("attention/{}/0/0/0?task=0&above=2", 400),
        ("attention/{}/0/0/0?task=0&colours=../../etc/passwd", 400),
        ("attention/{}/0/0/0?task=0&more=" + "x" * 600, 414),
        ("patches/{}/-1", 404),
        ("colours/none", 400),
        ("static/../server.py", 404),
        ("static/..%2fserver.py", 404),
        ("static/viewer.js%00", 404),
        ("../token/", 404),
        ("docs", 404),
        ("openapi.json", 404),
    ],
)
def test_what_is_not_there_is_refused_in_a_few_plain_words(
    served: Served, address: str, status: int
) -> None:
    app, rows = served
    answered = ask(app, address.replace("{}", rows["a.png"]["id"]))
    assert answered.status == status
    assert answered.headers["content-type"].startswith("text/plain")
    assert 0 < len(answered.body) < 40


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:8000"}, 421),
        ({"host": None}, 421),
        ({"host": "localhost:9"}, 200),  # through a tunnel
        ({"method": "POST"}, 405),
        ({"method": "DELETE"}, 405),
        ({"method": "OPTIONS"}, 405),
        ({"headers": {"cookie": "x" * 16_000}}, 200),
        ({"headers": {"cookie": "x" * 16_000, "accept": "y" * 1000}}, 431),
        ({"headers": {"content-length": "1"}}, 413),
        ({"headers": {"transfer-encoding": "chunked"}}, 413),
        ({"token": "other"}, 404),
        ({"token": ""}, 404),
    ],
)
def test_only_this_machine_may_ask_and_only_for_pages(
    served: Served, options: dict[str, Any], status: int
) -> None:
    answered = ask(served[0], "", **options)
    assert answered.status == status
    assert "access-control-allow-origin" not in answered.headers


def test_nothing_but_our_own_scripts_may_run(served: Served) -> None:
    app, _ = served
    for address in ("", "static/viewer.js", "static/leaflet.js", "api/images", "nothing"):
        headers = ask(app, address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
    page = ask(app, "").body.decode()
    assert "<script>" not in page
    assert "style=" not in page
    assert "http" not in page.replace("http-equiv", "")  # it works offline


def test_what_is_known_is_not_looked_at_again(
    served: Served, predictor: Predictor, run: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "predict", lambda *args, **kwargs: pytest.fail("looked again"))
    with opened(predictor, run, [images / "a.png"]) as (again, _):
        again.start()
        row = settled(again)["a.png"]
    assert row["answers"] == served[1]["a.png"]["answers"]


def test_an_image_that_has_changed_is_looked_at_again(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    Image.fromarray(picture(200, 100)).save(tmp_path / "a.png")
    with opened(predictor, run, [tmp_path / "a.png"]) as (images, _):
        images.start()
        settled(images)
        before = len(list((run / "viewer").iterdir()))
        entry = next(iter(images._entries.values()))
        shown = showing.Showing(images)
        tile, before_it = shown.tile(entry, 0, 0, 0), shown.details(entry)
        assert before_it["answer"] is not None
        Image.fromarray(picture(300, 100)).save(tmp_path / "a.png")
        assert shown.tile(entry, 0, 0, 0) != tile
        details = shown.details(entry)
        assert (details["width"], details["answer"]) == (300, None)
        assert details["changed"] != before_it["changed"]
        assert settled(images)["a.png"]["state"] == "ready"
        answer = images.answer(entry)
        assert answer is not None
        assert answer[0].patches == 12
    assert len(list((run / "viewer").iterdir())) == before + 1


def test_an_answer_is_of_the_model_that_was_loaded(
    run: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "run"
    ours.mkdir()
    shutil.copy(run / "model.safetensors", ours)
    with opened(load(ours), ours, [images / "a.png"]) as (first, _):
        another = load(ours)
        with torch.no_grad():
            for parameter in another.net.parameters():
                parameter.mul_(-1)
        save_model(another.net, another.config, ours / "model.safetensors")
        first.start()
        settled(first)
    looked: list[Path] = []
    predict = Predictor.predict

    def seen(self: Predictor, image: Path, **options: Any) -> Explanation:
        looked.append(image)
        return predict(self, image, **options)

    monkeypatch.setattr(Predictor, "predict", seen)
    with opened(load(ours), ours, [images / "a.png"]) as (second, _):
        second.start()
        settled(second)
    assert looked == [images / "a.png"]
    assert len(list((ours / "viewer").iterdir())) == 2


def test_an_answer_is_of_the_file_that_was_read(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, predict = tmp_path / "a.png", Predictor.predict
    Image.fromarray(picture(200, 100)).save(path)

    def replaced(self: Predictor, image: Path, **options: Any) -> Explanation:
        found = predict(self, image, **options)
        if found.patches == 8:
            Image.fromarray(picture(300, 100)).save(path)
        return found

    monkeypatch.setattr(Predictor, "predict", replaced)
    with opened(predictor, run, [path]) as (images, _):
        images.start()
        settled(images)
        entry = next(iter(images._entries.values()))
        assert images.answer(entry) is None  # what is there is of the file before
        settled(images)
        answer = images.answer(entry)
        assert answer is not None
        assert answer[0].patches == 12


def test_a_look_that_is_done_gives_way_no_more(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{name}.png" for name in "ab"]
    for seed, path in enumerate(paths):
        Image.fromarray(picture(100, 100, seed=seed)).save(path)
    predict, order = Predictor.predict, list[str]()

    def wanting(
        self: Predictor, image: Path, *, progress: Callable[[int], None] | None = None
    ) -> Explanation:
        order.append(image.stem)
        found = predict(self, image)
        images.want(list(images._entries.values())[1])
        assert progress is not None
        progress(found.patches)
        return found

    monkeypatch.setattr(Predictor, "predict", wanting)
    with opened(predictor, run, paths) as (images, _):
        images.start()
        settled(images)
    assert order == ["a", "b"]


def test_the_image_on_the_page_goes_first(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{name}.png" for name in "abc"]
    for seed, path in enumerate(paths):
        Image.fromarray(picture(100, 100, seed=seed)).save(path)
    predict, order, begun = Predictor.predict, list[str](), threading.Event()

    def slow(
        self: Predictor, image: Path, *, progress: Callable[[int], None] | None = None
    ) -> Explanation:
        order.append(image.stem)
        assert progress is not None
        if order == ["a"]:
            begun.set()
            while True:  # until it has to give way
                progress(1)
        return predict(self, image, progress=progress)

    monkeypatch.setattr(Predictor, "predict", slow)
    with opened(predictor, run, paths) as (images, app):
        images.start()
        assert begun.wait(30)
        third = images.rows()[1][2]["id"]
        assert ask(app, f"api/images/{third}").json["answer"] is None
        assert {row["state"] for row in settled(images).values()} == {"ready"}
    assert order == ["a", "c", "a", "b"]


def test_a_look_that_fails_leaves_the_others(
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
    with opened(predictor, run, find_images([tmp_path])) as (images, app):
        images.start()
        rows = settled(images)
        assert rows["a.png"]["message"] == "a.png: no answer (RuntimeError: out of memory)"
        assert rows["b.png"]["state"] == "ready"
        assert ask(app, f"tiles/{rows['a.png']['id']}/0/0/0").status == 200  # it can be seen


def test_a_run_that_cannot_be_written_to_is_viewed_too(
    predictor: Predictor, run: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(library.tempfile, "TemporaryFile", refuse)
    with opened(predictor, run, [images / "a.png"]) as (some, _):
        assert some._folder != run / "viewer"
        some.start()
        assert settled(some)["a.png"]["state"] == "ready"
    assert not some._folder.exists()


def test_memory_for_tiles_is_bounded(
    predictor: Predictor, run: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "_TILES", 30_000)
    one = Library(predictor, run, find_images([images]))
    shown = showing.Showing(one)
    first, second, *_ = one._entries.values()
    for entry in (first, second, first):
        for row in range(4):
            for column in range(3):
                shown.tile(entry, 2, column, row)
                assert shown._tiles.held <= 30_000
    assert shown._opened is not None
    assert shown._opened[0] is first  # and no other image


def test_a_model_without_scores_shows_what_it_kept(predictor: Predictor, images: Path) -> None:
    from ips.config import parse_config
    from ips.training import build_model
    from ips.viewer.answers import Answer

    values = predictor.config.model_dump(mode="json") | {"method": "rps"}
    config = parse_config(values, source="test")
    answer = Answer.of(Predictor(build_model(config), config).predict(images / "a.png"))
    assert (answer.maps[0] > 0).sum() == 6
    assert torch.from_numpy(answer.attention).sum(dim=1).tolist() == pytest.approx([1, 1, 1])


def test_images_are_found_in_folders(images: Path, tmp_path: Path) -> None:
    assert [p.name for p in find_images([images])][:2] == ["a.png", "b.tif"]
    assert len(find_images([images / "a.png", images])) == 4
    for name in ("a-overlay.png", "a-gallery.png", "a-classes.png", "a-map.tif", "a.png"):
        (tmp_path / name).touch()
    assert find_images([tmp_path]) == [tmp_path / "a.png"]  # the others were drawn of it
    assert find_images([tmp_path / "a-map.tif"]) == [tmp_path / "a-map.tif"]
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="no image in this folder"):
        find_images([tmp_path])
    with pytest.raises(ImageError, match="does not exist"):
        find_images([tmp_path / "x.png"])


def test_images_of_one_name_are_told_apart(predictor: Predictor, run: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Image.fromarray(picture(60, 60)).save(tmp_path / name / "a.png")
    named = Library(predictor, run, [tmp_path / "one" / "a.png", tmp_path / "two" / "a.png"])
    assert [row["name"] for row in named.rows()[1]] == ["one/a.png", "two/a.png"]


def test_mistakes_end_in_a_sentence(run: Path, images: Path, tmp_path: Path) -> None:
    def failed(*words: object) -> str:
        result = CliRunner().invoke(command, ["view", *map(str, words), "--no-browser"])
        assert result.exit_code == 1
        return result.output

    assert "does not exist" in failed(run, tmp_path / "x.png")
    assert "no such run folder" in failed(tmp_path / "run", images)
    assert "no such file or folder" in failed(run, images, "--annotations", tmp_path / "x")
    assert "one file for 4 images" in failed(run, images, "--annotations", images / "b.geojson")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: cannot be used" in failed(run, images, "--port", port)
