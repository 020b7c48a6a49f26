"""The library of the viewer: finding images, predicting them in the background, caching."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tifffile
import torch
from PIL import Image
from typer.testing import CliRunner

import ips.images
from ips.cli.app import app as command
from ips.config_io import parse_config
from ips.errors import DataError, ImageError
from ips.explain import Explanation
from ips.predictor import Predictor, load
from ips.training import build_model
from ips.training.folder import save_model
from ips.viewer import Library, find_images, renderer
from ips.viewer.answers import Answer
from ips.viewer.library import Queue
from tests.viewer.asking import ask
from tests.viewer.opening import Served, opened, settled
from tests.viewer.viewer_files import picture


def small_pictures(folder: Path, names: str) -> list[Path]:
    paths = [folder / f"{name}.png" for name in names]
    for seed, path in enumerate(paths):
        Image.fromarray(picture(100, 100, seed=seed)).save(path)
    return paths


def test_a_cached_prediction_is_not_repeated(
    served: Served, predictor: Predictor, run: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Predictor, "predict", lambda *args, **kwargs: pytest.fail("predicted again")
    )
    with opened(predictor, run, [images / "a.png"]) as (again, _):
        again.start()
        row = settled(again)["a.png"]
    assert row["predictions"] == served[1]["a.png"]["predictions"]


def test_a_modified_image_is_predicted_again(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    Image.fromarray(picture(200, 100)).save(tmp_path / "a.png")
    with opened(predictor, run, [tmp_path / "a.png"]) as (images, _):
        images.start()
        settled(images)
        before = len(list((run / "viewer").iterdir()))
        entry = next(iter(images.entries.values()))
        shown = renderer.Renderer(images)
        tile, before_it = shown.tile(entry, 0, 0, 0), shown.details(entry)
        assert before_it["answer"] is not None
        Image.fromarray(picture(300, 100)).save(tmp_path / "a.png")
        assert shown.tile(entry, 0, 0, 0) != tile
        details = shown.details(entry)
        assert (details["width"], details["answer"]) == (300, None)
        assert details["modified"] != before_it["modified"]
        assert settled(images)["a.png"]["state"] == "ready"
        answer = images.answer(entry)
        assert answer is not None
        assert answer[0].patches == 12
    assert len(list((run / "viewer").iterdir())) == before + 1


def test_an_answer_belongs_to_the_loaded_model(
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
    predicted: list[Path] = []
    predict = Predictor.predict

    def recording(self: Predictor, image: Path, **options: Any) -> Explanation:
        predicted.append(image)
        return predict(self, image, **options)

    monkeypatch.setattr(Predictor, "predict", recording)
    with opened(load(ours), ours, [images / "a.png"]) as (second, _):
        second.start()
        settled(second)
    assert predicted == [images / "a.png"]
    assert len(list((ours / "viewer").iterdir())) == 2


def test_an_answer_belongs_to_the_file_that_was_read(
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
        entry = next(iter(images.entries.values()))
        assert images.answer(entry) is None  # the stored answer belongs to the previous file
        settled(images)
        answer = images.answer(entry)
        assert answer is not None
        assert answer[0].patches == 12


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


def test_the_image_on_the_page_goes_first(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = small_pictures(tmp_path, "abc")
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
            while True:  # until it is preempted
                progress(1, 2)
        return predict(self, image, progress=progress, **options)

    monkeypatch.setattr(Predictor, "predict", slow)
    with opened(predictor, run, paths) as (images, app):
        images.set_queue(Queue(all=True))
        images.start()
        assert begun.wait(30)
        third = images.rows()[1][2]["id"]
        assert ask(app, f"api/images/{third}").json["answer"] is None
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
            while True:  # until it is paused
                progress(1, 2)
        return predict(self, image, progress=progress, **options)

    monkeypatch.setattr(Predictor, "predict", slow)
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


def test_true_labels_are_listed_and_compared_with_predictions(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    paths = small_pictures(tmp_path, "abc")
    predicted = [predictor.answers(predictor.predict(path)) for path in paths]
    shape, marks = predicted[0]["shape"], predicted[0]["marks"]
    other = next(name for name in ("ring", "bar") if name != shape)
    truth: dict[str, dict[str, Any]] = {
        str(paths[0]): {"shape": shape, "marks": marks},
        str(paths[1]): {"shape": other if predicted[1]["shape"] == shape else shape, "marks": []},
    }
    with opened(predictor, run, paths, truth=truth) as (images, app):
        assert ask(app, "api/run").json["labelled"]
        images.start()
        a, b, c = settled(images).values()
    assert a["truths"] == [[shape], marks]
    assert [row["correct"] for row in a["predictions"]] == [True, True]
    assert [row["correct"] for row in b["predictions"]] == [False, predicted[1]["marks"] == []]
    assert c["truths"] == [None, None]
    assert [row["correct"] for row in c["predictions"]] == [None, None]


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
    with opened(predictor, run, find_images([tmp_path])) as (images, app):
        images.start()
        rows = settled(images)
        assert (
            rows["a.png"]["message"] == "a.png: the prediction failed (RuntimeError: out of memory)"
        )
        assert rows["b.png"]["state"] == "ready"
        assert (
            ask(app, f"tiles/{rows['a.png']['id']}/0/0/0").status == 200
        )  # it can still be viewed


def test_a_read_only_run_folder_can_be_viewed(
    predictor: Predictor, run: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with opened(predictor, run, [images / "a.png"]) as (some, _):
        assert some._folder != run / "viewer"
        some.start()
        assert settled(some)["a.png"]["state"] == "ready"
    assert not some._folder.exists()


def test_memory_for_tiles_is_bounded(
    predictor: Predictor, run: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "_CACHE_BYTES", 30_000)
    one = Library(predictor, run, find_images([images]))
    shown = renderer.Renderer(one)
    first, second, *_ = one.entries.values()
    for entry in (first, second, first):
        for row in range(4):
            for column in range(3):
                shown.tile(entry, 2, column, row)
                assert shown._cache.nbytes <= 30_000
    assert [path for path, _ in one.images._images] == [first.path]  # no other image is open


def test_a_model_without_scores_shows_its_kept_patches(predictor: Predictor, images: Path) -> None:
    values = predictor.config.model_dump(mode="json") | {"method": "rps"}
    config = parse_config(values, source="test")
    answer = Answer.from_explanation(
        Predictor(build_model(config), config).predict(images / "a.png")
    )
    assert (answer.parts[0].maps[0] > 0).sum() == 6
    assert torch.from_numpy(answer.attention).sum(dim=1).tolist() == pytest.approx([1, 1, 1])


def test_a_model_of_several_magnifications_has_a_map_of_each(
    predictor: Predictor, tmp_path: Path
) -> None:
    path = tmp_path / "b.tif"
    text = "Aperio Image Library\r\n|AppMag = 40|MPP = 0.25"
    tifffile.imwrite(path, picture(600, 900), tile=(128, 128), description=text, metadata=None)
    values = predictor.config.model_dump(mode="json")
    values["patches"] |= {"magnification": [10, 40], "edge": "drop"}
    config = parse_config(values, source="test")
    several = Predictor(build_model(config), config)
    expected = several.predict(path)
    with opened(several, tmp_path, [path]) as (some, app):
        some.start()
        number = settled(some)["b.tif"]["id"]
        details = ask(app, f"api/images/{number}").json["answer"]
        tiles = [ask(app, f"attention/{number}/0/0/0?task=0&part={i}") for i in range(3)]
    assert details["parts"] == [
        {"extent": 200, "magnification": 10},
        {"extent": 50, "magnification": 40},
    ]
    assert details["patches"] == 3 * 4 + 12 * 18
    starts = [part.patches.start for part in expected.source.parts]
    numbers = [sum(i >= start for start in starts) - 1 for i in expected.indices.tolist()]
    assert details["part_numbers"] == numbers
    assert [tile.status for tile in tiles] == [200, 200, 404]
    assert tiles[0].body != tiles[1].body


def test_images_are_found_in_folders(images: Path, tmp_path: Path) -> None:
    assert [p.name for p in find_images([images])][:2] == ["a.png", "b.tif"]
    assert len(find_images([images / "a.png", images])) == 4
    for name in ("a-overlay.png", "a-gallery.png", "a-classes.png", "a-map.tif", "a.png"):
        (tmp_path / name).touch()
    assert find_images([tmp_path]) == [tmp_path / "a.png"]  # the others are explanations of it
    assert find_images([tmp_path / "a-map.tif"]) == [tmp_path / "a-map.tif"]
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="no image in this folder"):
        find_images([tmp_path])
    inside = [tmp_path / label / "scans" / "a.png" for label in ("high", "low")]
    hidden = tmp_path / ".trash" / "a.png"
    drawn = tmp_path / "run" / "figures" / "training.png"
    for path in (*inside, hidden, drawn, tmp_path / "run" / "model.safetensors"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert find_images([tmp_path]) == inside
    with pytest.raises(ImageError, match="does not exist"):
        find_images([tmp_path / "x.png"])


def test_images_with_the_same_name_show_their_folder(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Image.fromarray(picture(60, 60)).save(tmp_path / name / "a.png")
    named = Library(predictor, run, [tmp_path / "one" / "a.png", tmp_path / "two" / "a.png"])
    assert [row["name"] for row in named.rows()[1]] == ["one/a.png", "two/a.png"]


def test_mistakes_give_one_sentence(run: Path, images: Path, tmp_path: Path) -> None:
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


def test_tiles_patches_and_prediction_share_one_open_image(
    predictor: Predictor, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened_files: list[Path] = []

    def open_once(path: Path, **options: Any) -> Any:
        opened_files.append(path)
        return ips.images.open_image(path, **options)

    monkeypatch.setattr("ips.viewer.images.open_image", open_once)
    monkeypatch.setattr("ips.patches.opening.open_image", lambda path: pytest.fail("opened again"))
    (path,) = small_pictures(tmp_path, "a")
    with opened(predictor, run, [path]) as (images, _):
        entry = next(iter(images.entries.values()))
        shown = renderer.Renderer(images)
        assert shown.tile(entry, 0, 0, 0)
        images.start()
        settled(images)
        assert shown.patch(entry, 0)
        assert shown.details(entry)["answer"] is not None
    assert opened_files == [path]
