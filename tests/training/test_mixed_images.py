"""A folder of images of every kind: training, prediction, export and report agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import numpy.typing as npt
import pytest
import tifffile
import torch
from PIL import Image
from rich.console import Console

import ips
from ips import api
from ips.config import Config
from ips.config_io import parse_config
from ips.errors import ConfigError, DataError
from ips.patches.image import ImagePatches
from ips.training import build_data, evaluate, train
from ips.training.model import resolve
from tests.training.tiny import own

CONSOLE = Console(quiet=True)
Values = npt.NDArray[Any]


def config(csv: Path, **patches: object) -> Config:
    return own(
        csv,
        data={"kind": "table", "csv": str(csv), "validation": 0},
        patches={"size": 16, **patches},
        augment={"kind": "none"},
        train={"epochs": 1, "batch": 4, "warmup": 0},
    )


def drawn(height: int = 40, width: int = 56) -> Values:
    """A smooth picture, which JPEG preserves well."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 4, y * 6, 255 - x * 2], axis=2).astype(np.uint8)


def deep(pixels: Values) -> npt.NDArray[np.uint16]:
    return pixels.astype(np.uint16) * 257


def save_all(folder: Path) -> dict[str, Values]:
    """Write a picture in every kind; return what a patch of each should show, in RGB."""
    colour = drawn()
    picture = Image.fromarray(colour)
    grey = np.asarray(picture.convert("L"))
    grey_rgb = np.repeat(grey[..., None], 3, axis=2)
    alpha = np.full((*grey.shape, 1), 255, np.uint8)
    alpha[:10] = 0
    layered = np.concatenate([colour, alpha], axis=2)
    exif = Image.Exif()
    exif[274] = 6  # turn by a quarter to show it
    picture.save(folder / "colour.jpg", quality=95)
    picture.convert("L").save(folder / "grey.jpg", quality=95)
    picture.quantize(64).save(folder / "palette.png")
    picture.convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    Image.fromarray(layered).save(folder / "transparent.png")
    (folder / "deep.png").write_bytes(imagecodecs.png_encode(deep(colour)))
    (folder / "deep-grey.png").write_bytes(imagecodecs.png_encode(deep(grey)))
    tifffile.imwrite(folder / "deep.tif", deep(colour), photometric="rgb", tile=(16, 16))
    tifffile.imwrite(folder / "deep-grey.tif", deep(grey))
    picture.save(folder / "turned.jpg", quality=95, exif=exif)
    return {
        "colour.jpg": colour,
        "grey.jpg": grey_rgb,
        "palette.png": colour,
        "cmyk.jpg": colour,
        "transparent.png": colour * (alpha > 0),
        "deep.png": colour,
        "deep-grey.png": grey_rgb,
        "deep.tif": colour,
        "deep-grey.tif": grey_rgb,
        "turned.jpg": np.rot90(colour, -1),
    }


def write_table(folder: Path, names: list[str]) -> Path:
    lines = ["path,grade,split"]
    for split in ("train", "test"):
        for number, name in enumerate(names):
            (folder / split).mkdir(exist_ok=True)
            (folder / split / name).write_bytes((folder / name).read_bytes())
            lines.append(f"{split}/{name},{'high' if number % 2 else 'low'},{split}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder / "labels.csv"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Values]]:
    folder = tmp_path_factory.mktemp("mixed")
    expected = save_all(folder)
    write_table(folder, list(expected))
    return folder, expected


@pytest.fixture(scope="module")
def run(mixed: tuple[Path, dict[str, Values]]) -> Path:
    folder, _ = mixed
    train(config(folder / "labels.csv"), folder / "run", console=CONSOLE)
    return folder / "run"


def test_a_mixed_folder_trains(run: Path) -> None:
    result = evaluate(run, console=CONSOLE)
    assert result.scores["grade"] is not None
    assert result.model.config.patches.channels == "rgb"
    assert result.model.config.encoder.inputs == 3


def test_every_kind_gives_the_pixels_of_the_picture(
    mixed: tuple[Path, dict[str, Values]], run: Path
) -> None:
    folder, expected = mixed
    predictor = ips.load(run)
    for name, pixels in expected.items():
        source = predictor.open(folder / name)
        assert source.shape == (3, 16, 16), name
        for patch, (x, y) in zip(source.read(range(len(source))), source.coords, strict=True):
            naive = pixels[y : y + 16, x : x + 16].transpose(2, 0, 1).astype(int)
            # JPEG, CMYK and 64 colours are not exact
            assert np.abs(patch.numpy() - naive).mean() < 8, name


def test_training_and_prediction_read_the_same_patches(
    mixed: tuple[Path, dict[str, Values]], run: Path
) -> None:
    folder, expected = mixed
    predictor = ips.load(run)
    data = build_data(config(folder / "labels.csv"))
    for number, name in enumerate(expected):
        trained, _ = data.train[number]
        predicted = predictor.open(folder / name)
        every = range(len(trained))
        assert torch.equal(trained.read(every), predicted.read(every)), name


def test_every_kind_is_predicted_explained_and_reported(
    mixed: tuple[Path, dict[str, Values]], run: Path, tmp_path: Path
) -> None:
    folder, expected = mixed
    paths = [folder / name for name in expected]
    found = list(api.explain(run, paths, out=tmp_path))
    assert [Path(image.image).name for image in found] == list(expected)
    assert all(file.is_file() for image in found for file in image.files)
    assert api.report(run, examples=2).is_file()


def test_grey_and_deep_files_of_one_picture_are_one_image(
    mixed: tuple[Path, dict[str, Values]], run: Path
) -> None:
    folder, _ = mixed
    predictor = ips.load(run)
    names = ("deep.png", "deep.tif"), ("deep-grey.png", "deep-grey.tif")
    for one, other in names:
        first, second = (predictor.predict(folder / name) for name in (one, other))
        assert torch.equal(first.probabilities["grade"], second.probabilities["grade"])


def decide(folder: Path, names: list[str], **patches: object) -> Config:
    settings = config(write_table(folder, names), **patches)
    return resolve(settings, build_data(settings))


class TestDecision:
    """What ``patches.channels: null`` becomes."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        save_all(tmp_path)
        for name in ("bands.npy", "more.npy"):
            np.save(tmp_path / name, np.zeros((40, 56, 5), np.uint8))
        return tmp_path

    @pytest.mark.parametrize(
        ("names", "channels", "inputs"),
        [
            (["colour.jpg", "palette.png"], "rgb", 3),
            (["grey.jpg", "deep-grey.tif"], "grey", 1),
            (["grey.jpg", "colour.jpg"], "rgb", 3),
            (["bands.npy", "more.npy"], "as-is", 5),
        ],
    )
    def test_from_the_training_images(
        self, folder: Path, names: list[str], channels: str, inputs: int
    ) -> None:
        found = decide(folder, names)
        assert (found.patches.channels, found.encoder.inputs) == (channels, inputs)
        again = resolve(found, build_data(found))  # a resolved config stays as it is
        assert again == found

    @pytest.mark.parametrize(("channels", "inputs"), [("rgb", 3), ("grey", 1)])
    def test_as_the_config_says(self, folder: Path, channels: str, inputs: int) -> None:
        found = decide(folder, ["grey.jpg", "colour.jpg", "bands.npy"], channels=channels)
        assert (found.patches.channels, found.encoder.inputs) == (channels, inputs)

    def test_an_unreadable_file_is_left_to_the_check(self, folder: Path) -> None:
        (folder / "bad.png").write_bytes(b"no image")
        settings = config(write_table(folder, ["colour.jpg", "grey.jpg", "bad.png"]))
        assert build_data(settings).channels == "rgb"
        with pytest.raises(DataError, match=r"bad\.png"):
            train(settings, folder / "run", console=CONSOLE)

    def test_bands_beside_colour_are_named(self, folder: Path) -> None:
        settings = config(write_table(folder, ["colour.jpg", "bands.npy"]))
        with pytest.raises(DataError, match=r"5 channels: .*patches\.channels"):
            train(settings, folder / "run", console=CONSOLE)

    def test_drawn_images_have_their_own(self) -> None:
        values = {
            "data": {"kind": "megapixel-mnist", "side": 200, "train": 2, "test": 2},
            "patches": {"size": 50, "channels": "rgb"},
            "tasks": {"majority": {"kind": "multiclass", "classes": 10}},
        }
        settings = parse_config(values, source="test")
        with pytest.raises(ConfigError, match=r"patches\.channels=rgb but images of megapixel"):
            resolve(settings, build_data(settings))


def test_a_model_of_grey_images_converts_a_colour_image(tmp_path: Path) -> None:
    save_all(tmp_path)
    train(
        config(write_table(tmp_path, ["grey.jpg", "deep-grey.png"])),
        tmp_path / "run",
        console=CONSOLE,
    )
    source = ips.load(tmp_path / "run").open(tmp_path / "colour.jpg")
    assert isinstance(source, ImagePatches)
    with Image.open(tmp_path / "colour.jpg") as stored:
        grey = np.asarray(stored.convert("L"))
    np.testing.assert_array_equal(source.read([0])[0, 0].numpy(), grey[:16, :16])


def test_bands_train_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(4):
        bands = rng.integers(0, 4096, (5, 40, 56), dtype=np.uint16)
        path = tmp_path / f"{number}.tif"
        tifffile.imwrite(path, bands, photometric="minisblack", planarconfig="separate")
    csv = write_table(tmp_path, [f"{number}.tif" for number in range(4)])
    train(config(csv, white=4095, scale=0.5, size=8), tmp_path / "run", console=CONSOLE)
    predictor = ips.load(tmp_path / "run")
    assert predictor.config.encoder.inputs == 5
    source = predictor.open(tmp_path / "0.tif")
    assert source.shape == (5, 8, 8)
    assert source.extent == 16
    (found,) = api.explain(tmp_path / "run", [tmp_path / "0.tif"], out=tmp_path / "out")
    assert len(found.files) >= 5
