"""The viewer with a model for features: their slide is shown, or nothing is served."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch
from PIL import Image

import ips.patches.features
from ips.annotations import polygon_feature, write_geojson
from ips.config_io import parse_config
from ips.errors import DataError
from ips.images import open_image
from ips.loading import load
from ips.patches import FeatureWriter, SlideFinder
from ips.predictor import Predictor
from ips.training import build_model
from ips.training.folder import save_model
from ips.viewer import Library
from ips.viewer.renderer import Renderer
from ips.viewer.tiles import find_tile, render_patch, render_tile
from tests.command import refused
from tests.patches.bounded_slide import (
    BOUNDS,
    features_of,
    give_bounds,
    patches_of,
    write_features,
    write_slide,
)
from tests.viewer.asking import ask
from tests.viewer.opening import opened, settled, single

CONFIG = {
    "encoder": {"name": "projector", "dim": 8, "inputs": 8, "stages": 1},
    "select": {"keep": 6, "chunk": 6},
    "aggregate": {"heads": 4},
    "tasks": {"tumor": {"kind": "binary", "names": ["normal", "tumor"]}},
}


@pytest.fixture(scope="module")
def feature_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    config = parse_config(CONFIG, source="test")
    torch.manual_seed(0)
    save_model(build_model(config), config, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def model(feature_run: Path) -> Predictor:
    return load(feature_run)


@pytest.fixture
def slide(tmp_path: Path) -> Path:
    return write_slide(tmp_path / "slides" / "a.tif")


@pytest.fixture
def bag(tmp_path: Path, slide: Path) -> Path:
    """Features that do not say which slide they are of."""
    patches = patches_of(slide)
    with FeatureWriter(tmp_path / "a.h5", patch_size=20, extent=40) as writer:
        writer.append(features_of(patches), patches.coords)
    return tmp_path / "a.h5"


def test_the_slide_is_shown(model: Predictor, feature_run: Path, bag: Path, slide: Path) -> None:
    write_geojson(
        slide.with_suffix(".geojson"), [polygon_feature([(0, 0), (9, 0), (9, 9)], name="a")]
    )
    with opened(model, feature_run, [bag], slides=SlideFinder(slide.parent)) as (images, _):
        images.start()
        rows = settled(images)
        assert rows["a.h5"]["state"] == "ready"
        assert not any("slide" in key or "path" in key for key in rows["a.h5"])
        shown, entry = Renderer(images), next(iter(images.entries.values()))
        details, answer = shown.details(entry, 0), shown.answer(entry)
        assert (details["width"], details["height"], details["mpp"]) == (240, 160, 0.25)
        assert details["annotated"]
        assert len(shown.annotations(entry, 0)) == 1
        assert answer["parts"][0]["extent"] == 40
        expected = model.predict(bag).coords.tolist()
        assert answer["kept"] == expected
        image = open_image(slide)
        x, y = expected[0]
        assert shown.patch(entry, 0) == render_patch(image, x, y, 40)
        tile = find_tile(image, 0, 0, 0)
        assert tile is not None
        assert shown.tile(entry, 0, 0, 0, 0) == render_tile(image, tile)


def test_coordinates_are_right_to_the_pixel_with_an_offset_and_at_another_level(
    model: Predictor, feature_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_bounds(monkeypatch)
    bounded = vars(ips.patches.features)["open_image"]
    monkeypatch.setattr("ips.viewer.images.open_image", bounded)
    slide = write_slide(tmp_path / "slides" / "a.tif")
    patches = patches_of(slide)
    bag = write_features(tmp_path / "a.h5", patches, slide=slide)
    pixels, (left, top, width, height) = tifffile.imread(slide, key=0), BOUNDS
    with opened(model, feature_run, [bag]) as (library, app):
        (entry,) = library.entries.values()
        library._predict(entry)
        kept = ask(app, f"api/images/{entry.id}").json["kept"]
        assert ask(app, f"api/images/{entry.id}/0").json["bounds"] == [*BOUNDS]
        crops = [ask(app, f"patches/{entry.id}/{rank}").body for rank in range(len(kept))]
        tile = ask(app, f"attention/{entry.id}/0/0/0/0?task=0").body
        small = ask(app, f"thumbnails/{entry.id}/0/attention?task=0").body
    for (x, y), crop in zip(kept, crops, strict=True):
        assert np.array_equal(decoded(crop), pixels[y : y + 40, x : x + 40])
    drawn = decoded(tile)
    rows, columns = np.nonzero(drawn[..., 3])
    assert [columns.min(), rows.min()] == patches.coords.min(axis=0).tolist() == [left, top]
    assert [columns.max(), rows.max()] == (patches.coords.max(axis=0) + 39).tolist()
    assert np.array_equal(decoded(small), drawn[top : top + height, left : left + width])
    changes = [np.flatnonzero((a[1:] != a[:-1]).any(axis=(1, 2))) + 1 for a in cells(drawn)]
    for edges, start in zip(changes, (top, left), strict=True):
        assert {(edge - start) % 20 for edge in edges.tolist()} == {0}  # a step of 10 px, twice


def decoded(data: bytes) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(BytesIO(data)))


def cells(drawn: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.uint8]]:
    """A map with the rows first, and with the columns first."""
    return [drawn, drawn.transpose(1, 0, 2)]


def test_another_patch_size_is_predicted_again(
    model: Predictor, feature_run: Path, bag: Path, slide: Path
) -> None:
    with h5py.File(bag, "a") as file:
        del file["coords"].attrs["patch_size_level0"]
        del file.attrs["format"]
    names = []
    for finder in (
        SlideFinder(slide.parent, patch_size=20, level=1),
        SlideFinder(slide.parent, patch_size=30),
    ):
        with opened(model, feature_run, [bag], slides=finder) as (images, _):
            entry = next(iter(images.entries.values()))
            names.append(images._cache_file(entry))
            images.start()
            settled(images)
            answer = images.answer(entry)
            assert answer is not None
            assert answer[0].parts[0].extent == (40 if finder.level else 30)
    assert len(set(names)) == 2


class TestRefused:
    """At once, in the terminal, with the remedy."""

    def test_without_the_slide(self, feature_run: Path, bag: Path) -> None:
        message = refused("view", feature_run, bag, "--no-browser")
        assert f"{bag}: its slide was not found" in message
        assert "--slides" in message

    def test_without_a_patch_size(self, feature_run: Path, slide: Path, tmp_path: Path) -> None:
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["features"] = np.zeros((2, 8), np.float32)
            file["coords"] = np.array([[24, 8], [44, 8]])
        words = ("view", feature_run, tmp_path / "a.h5", "--slides", slide.parent, "--no-browser")
        assert "a.h5: does not say how large its patches are: give --patch-size" in refused(*words)

    def test_slides_in_place_of_features(self, feature_run: Path, slide: Path) -> None:
        for given in (slide, slide.parent):
            message = refused("view", feature_run, given, "--no-browser")
            assert "trained on features: give feature files" in message

    def test_features_for_a_model_of_images(self, run: Path, bag: Path) -> None:
        message = refused("view", run, bag, "--no-browser")
        assert "a.h5: holds features, but the model takes images" in message

    def test_by_the_library(self, model: Predictor, bag: Path) -> None:
        with pytest.raises(DataError, match="its slide was not found"):
            Library(model, None, single([bag]))
