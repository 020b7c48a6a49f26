"""The library of the viewer: answers, their cache and the open images."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

import ips.images
from ips.config_io import parse_config
from ips.explain import Explanation
from ips.loading import load
from ips.predictor import Predictor
from ips.training import build_model
from ips.training.folder import save_model
from ips.viewer import Library, find_images, renderer
from ips.viewer.answers import Answer
from tests.viewer.asking import ask
from tests.viewer.opening import Served, opened, settled
from tests.viewer.viewer_files import picture, small_pictures


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
        tile, before_it = shown.tile(entry, 0, 0, 0, 0), shown.details(entry, 0)
        assert shown.answer(entry)
        Image.fromarray(picture(300, 100)).save(tmp_path / "a.png")
        assert shown.tile(entry, 0, 0, 0, 0) != tile
        details = shown.details(entry, 0)
        assert (details["width"], shown.answer(entry)) == (300, {})
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
    one = Library(predictor, run, find_images([images], predictor.config))
    shown = renderer.Renderer(one)
    first, second, *_ = one.entries.values()
    for entry in (first, second, first):
        for row in range(4):
            for column in range(3):
                shown.tile(entry, 0, 2, column, row)
                assert shown._cache.nbytes <= 30_000
    assert [path for path, _ in one.images._images] == first.paths  # no other image is open


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
        details = ask(app, f"api/images/{number}").json
        tiles = [ask(app, f"attention/{number}/0/0/0/0?task=0&part={i}") for i in range(3)]
    shares = [part.pop("shares") for part in details["parts"]]
    assert np.sum(shares, axis=0) == pytest.approx([1, 1, 1])
    assert details["parts"] == [
        {"image": 0, "extent": 200, "magnification": 10},
        {"image": 0, "extent": 50, "magnification": 40},
    ]
    assert details["patches"] == 3 * 4 + 12 * 18
    starts = [part.patches.start for part in expected.source.parts]
    numbers = [sum(i >= start for start in starts) - 1 for i in expected.indices.tolist()]
    assert details["part_numbers"] == numbers
    assert [tile.status for tile in tiles] == [200, 200, 404]
    assert tiles[0].body != tiles[1].body


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
        assert shown.tile(entry, 0, 0, 0, 0)
        images.start()
        settled(images)
        assert shown.patch(entry, 0)
        assert shown.answer(entry)
        assert shown.details(entry, 0)["width"] == 100
    assert opened_files == [path]
