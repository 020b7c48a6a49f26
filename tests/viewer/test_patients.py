"""Several images of a patient: one answer, a map of each image, one scale for all."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ips.annotations import polygon_feature, write_geojson
from ips.config import Config
from ips.errors import DataError
from ips.explain import Explanation
from ips.explain.maps import percentiles
from ips.inputs import Bags
from ips.predictor import Predictor
from ips.viewer import find_images
from ips.viewer.renderer import Renderer
from tests.viewer.asking import Answered, ask
from tests.viewer.opening import Served, opened, settled
from tests.viewer.viewer_files import NASTY, picture

NAMES = ["0.png", f"1 {NASTY}.png", "2.png"]
SIZES = [(300, 200), (260, 400), (120, 130)]


@pytest.fixture(scope="module")
def grouped(predictor: Predictor) -> Iterator[Predictor]:
    """A model whose bags are patients."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Config, "bags", "group")
        yield predictor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three images of one patient, and one of another."""
    root = tmp_path_factory.mktemp("patients")
    for patient, count in (("p1", 3), ("p2", 1)):
        (root / patient).mkdir()
        for number in range(count):
            pixels = picture(*SIZES[number], seed=number + count)
            Image.fromarray(pixels).save(root / patient / NAMES[number])
    outline = polygon_feature([(5, 5), (50, 5), (50, 50)], name=NASTY)
    write_geojson((root / "p1" / NAMES[1]).with_suffix(".geojson"), [outline])
    return root


@pytest.fixture(scope="module")
def bags(grouped: Predictor, folder: Path) -> Bags:
    return find_images([folder], grouped.config)


@pytest.fixture(scope="module")
def expected(grouped: Predictor, bags: Bags) -> Explanation:
    return grouped.predict(list(bags["p1"]), name="p1")


@pytest.fixture(scope="module")
def shown(grouped: Predictor, run: Path, bags: Bags) -> Iterator[Served]:
    with opened(grouped, run, bags) as (library, app):
        library.start()
        yield app, settled(library)


def pixels(answered: Answered) -> np.ndarray[Any, Any]:
    assert answered.status == 200
    return np.asarray(Image.open(BytesIO(answered.body)).convert("RGBA"))


def test_folders_and_tables_name_patients(
    grouped: Predictor, folder: Path, bags: Bags, tmp_path: Path
) -> None:
    assert {name: len(files) for name, files in bags.items()} == {"p1": 3, "p2": 1}
    rows = [f"{folder / 'p1' / name},same" for name in ("0.png", "2.png")]
    (tmp_path / "a.csv").write_text("\n".join(["path,patient", *rows]))
    found = find_images([tmp_path / "a.csv"], grouped.config)
    assert found == {"same": [str(folder / "p1" / name) for name in ("0.png", "2.png")]}
    with pytest.raises(DataError, match="trained on features"):
        find_images([tmp_path / "a.csv"], grouped.config, features=True)


def test_a_patient_has_one_answer(shown: Served, expected: Explanation) -> None:
    app, rows = shown
    assert list(rows) == ["p1", "p2"]
    assert rows["p1"]["images"] == NAMES
    answer = ask(app, f"api/images/{rows['p1']['id']}").json
    assert answer["patches"] == expected.patches == 6 * 4 + 6 * 8 + 3 * 3
    assert answer["kept"] == expected.coords.tolist()
    assert answer["part_numbers"] == expected.part_numbers.tolist()
    assert [part["image"] for part in answer["parts"]] == [0, 1, 2]
    means = [part["shares"][-1] for part in answer["parts"]]
    assert means == pytest.approx(expected.shares)
    assert sum(means) == pytest.approx(1)


def test_each_image_has_its_size_tiles_and_annotations(shown: Served) -> None:
    app, rows = shown
    number = rows["p1"]["id"]
    for i, (width, height) in enumerate(SIZES):
        details = ask(app, f"api/images/{number}/{i}").json
        assert (details["width"], details["height"]) == (width, height)
        assert details["annotated"] == (i == 1)
        tile = pixels(ask(app, f"tiles/{number}/{i}/{details['zoom']}/0/0"))
        grey = picture(width, height, seed=i + 3)[:256, :256]
        h, w = grey.shape
        assert np.abs(tile[:h, :w, 0].astype(int) - grey).max() < 6  # JPEG
        assert ask(app, f"thumbnails/{number}/{i}").status == 200
    assert ask(app, f"api/images/{number}/0/annotations").json == []
    (shape,) = ask(app, f"api/images/{number}/1/annotations").json
    assert shape["name"] == NASTY
    for address in ("api/images/{}/3", "tiles/{}/3/0/0/0", "thumbnails/{}/3", "api/images/{}/-1"):
        answered = ask(app, address.format(number))
        assert (answered.status, answered.body) == (404, b"no such image")


def test_patches_are_cut_from_their_own_image(shown: Served, expected: Explanation) -> None:
    app, rows = shown
    kept = zip(expected.coords.tolist(), expected.part_numbers.tolist(), strict=True)
    for rank, ((x, y), part) in enumerate(kept):
        crop = pixels(ask(app, f"patches/{rows['p1']['id']}/{rank}"))[..., 0]
        padded = np.pad(picture(*SIZES[part], seed=part + 3), ((0, 50), (0, 50)))
        assert np.array_equal(crop, padded[y : y + 50, x : x + 50])


def test_the_attention_of_all_images_has_one_scale(shown: Served, expected: Explanation) -> None:
    app, rows = shown
    number = rows["p1"]["id"]
    maps = [part.map() for part in expected.by_part()]
    stored = [found.values.astype(np.float32).astype(np.float64) for found in maps]
    every = np.concatenate([values.ravel() for values in stored])
    for i, (found, values) in enumerate(zip(maps, stored, strict=True)):
        ranks = np.where(values > 0, percentiles(values, among=every), -1)
        tiles = [
            pixels(ask(app, f"attention/{number}/{i}/0/0/0?task=2&part={i}&min_rank={low}"))
            for low in (0, 0.6)
        ]
        zoom = ask(app, f"api/images/{number}/{i}").json["zoom"]
        step = int(found.cell) // 2**zoom
        for low, tile in zip((0, 0.6), tiles, strict=True):
            for row, column in np.ndindex(ranks.shape):
                y, x = int((row + 0.5) * step), int((column + 0.5) * step)
                inside = (x << zoom) < SIZES[i][0] and (y << zoom) < SIZES[i][1]
                drawn = inside and ranks[row, column] >= low - 1e-6
                assert (tile[y, x, 3] > 0) == drawn
        small = pixels(ask(app, f"thumbnails/{number}/{i}/attention?task=2&part={i}"))
        assert small.shape[1] / small.shape[0] == pytest.approx(SIZES[i][0] / SIZES[i][1], rel=0.02)
    assert ask(app, f"attention/{number}/0/0/0/0?task=2&part=1").status == 404  # of another image
    assert ask(app, f"thumbnails/{number}/0/attention?task=2&part=1").status == 404


def test_the_images_of_one_patient_stay_open(grouped: Predictor, run: Path, bags: Bags) -> None:
    with opened(grouped, run, bags) as (library, _):
        renderer = Renderer(library)
        first, second = library.entries.values()
        for number in (0, 1, 2, 0):
            renderer.tile(first, number, 0, 0, 0)
        assert len(library.images._images) == 3
        renderer.tile(second, 0, 0, 0, 0)
        assert [path for path, _ in library.images._images] == second.paths


def test_a_changed_image_of_a_patient_is_predicted_again(
    grouped: Predictor, run: Path, tmp_path: Path
) -> None:
    paths = [tmp_path / name for name in ("a.png", "b.png")]
    for path in paths:
        Image.fromarray(picture(100, 100)).save(path)
    with opened(grouped, run, {"p": [str(path) for path in paths]}) as (library, _):
        (entry,) = library.entries.values()
        library._predict(entry)
        before = library.answer(entry)
        assert before is not None
        assert before[0].patches == 8
        Image.fromarray(picture(150, 100)).save(paths[1])
        assert library.answer(entry) is None
