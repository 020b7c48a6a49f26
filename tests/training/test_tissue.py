"""Training, prediction and the check of slides whose empty patches are left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from rich.console import Console

import ips
from ips.advice.check import check_config
from ips.advice.survey import survey
from ips.config import Config
from ips.data.augmented import AugmentedData
from ips.errors import ConfigError, DataError
from ips.patches import PatchSubset, filtered, in_memory
from ips.patches.tissue import tissue_patches
from ips.progress import progress_bar
from ips.slides.coords import Resolution
from ips.slides.tissue import find_tissue
from ips.training import build_data, evaluate, train
from ips.training.model import resolve
from ips.training.skipping import bad_files
from tests.training.tiny import own, tiny

CONSOLE = Console(quiet=True)


def write(path: Path, *, seed: int, empty: bool = False) -> None:
    """A pyramid of glass, with noise as tissue in a place that depends on the seed."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(240, 245, (128, 160, 3), dtype=np.uint8)
    if not empty:
        (x, y), width = rng.integers(8, 60, 2), 30 + 9 * seed
        pixels[y : y + 50, x : x + width] = rng.integers(60, 200, (50, width, 3))[:, : 160 - x]
    scale = {"resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}
    with tifffile.TiffWriter(path) as file:
        file.write(pixels, tile=(32, 32), photometric="rgb", **scale)
        file.write(pixels[::2, ::2], tile=(32, 32), photometric="rgb", subfiletype=1)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    lines = ["path,grade,split"]
    for number in range(8):
        write(tmp_path / f"{number}.tif", seed=number)
        split = ("train", "train", "val", "test")[number // 2]
        lines.append(f"{number}.tif,{number % 2},{split}")
    (tmp_path / "slides.csv").write_text("\n".join(lines))
    return tmp_path / "slides.csv"


def config(table: Path, **sections: Any) -> Config:
    return own(table, **{"patches": {"size": 16, "tissue": "otsu"}, **sections})


@pytest.mark.parametrize("load", ["eager", "sequential", "lazy"])
def test_no_patch_on_glass_is_scored_in_training_or_prediction(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: str
) -> None:
    read: list[float] = []
    searched: list[str] = []
    plain_read, plain_search = ips.patches.ImagePatches.read, tissue_patches

    def record(self: Any, indices: Any) -> Any:
        patches = plain_read(self, indices)
        read.extend(patches.flatten(1).min(dim=1).values.tolist())
        return patches

    def search(patches: Any) -> Any:
        searched.append(patches.name)
        return plain_search(patches)

    monkeypatch.setattr(filtered, "tissue_patches", search)
    select = {"keep": 3, "chunk": 4, "load": load, "refresh": 0.3}
    epochs = {"epochs": 4, "batch": 2, "warmup": 0}
    settings = config(table, select=select, train=epochs, augment={"shift": 0.5})
    data = build_data(settings)
    assert len({len(data.train[i][0]) for i in range(4)}) > 1
    monkeypatch.setattr(ips.patches.ImagePatches, "read", record)
    monkeypatch.setattr("ips.training.run.check_files", lambda *_: None)  # reads a corner
    train(settings, tmp_path / "run", console=CONSOLE, data=data)
    evaluate(tmp_path / "run", console=CONSOLE, data=data)
    assert sorted(searched) == [f"{number}.tif" for number in range(8)]  # once in all epochs
    result = ips.load(tmp_path / "run").predict(tmp_path / "7.tif")
    assert len(read) > 300
    assert max(read) < 200
    assert result.patches < 80
    assert ips.load(tmp_path / "run").config.patches.tissue == "otsu"


def test_patches_of_a_shifted_grid_keep_their_numbers(table: Path) -> None:
    settings = config(table, augment={"kind": "slides"})
    data = build_data(settings)
    augmented = AugmentedData(data.train, resolve(settings, data).augment, seed=0)
    augmented.set_epoch(1)
    counts = set()
    for i in range(4):
        plain, moved = data.train[i][0], augmented[i][0]
        assert isinstance(plain, PatchSubset)
        all_coords = plain.source.coords  # of the whole grid, by number
        for source in (moved, in_memory(moved)):
            distance = source.coords[:, None] - all_coords  # (N, grid, 2)
            nearest = np.square(distance).sum(axis=2).min(axis=1)
            own = np.square(source.coords - all_coords[source.numbers]).sum(axis=1)
            assert (own == nearest).all()
            assert (np.diff(source.numbers) > 0).all()
        counts |= {len(plain), len(moved)}
    assert len(counts) > 1


def test_workers_and_a_resumed_run_use_the_same_patches(table: Path, tmp_path: Path) -> None:
    epochs = {"epochs": 2, "batch": 2, "warmup": 0, "workers": 1}
    train(config(table, train=epochs), tmp_path / "run", console=CONSOLE)
    train(config(table, train=epochs | {"workers": 0}), tmp_path / "same", console=CONSOLE)
    one, other = (ips.load(tmp_path / run).net.state_dict() for run in ("run", "same"))
    assert all(bool((one[name] == other[name]).all()) for name in one)


def test_stored_tissue_is_used_from_another_folder(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slides = sorted(tmp_path.glob("*.tif"))
    find_tissue(slides, out=tmp_path / "tissue", resolution=Resolution(16), edge="drop")
    monkeypatch.chdir(tmp_path)
    settings = config(table, patches={"size": 16, "tissue": "tissue"})
    counts = [len(build_data(settings).test[i][0]) for i in range(2)]
    assert counts == [len(build_data(config(table)).test[i][0]) for i in range(2)]
    train(settings, Path("run"), console=CONSOLE)
    monkeypatch.chdir(Path("/"))
    assert ips.load(tmp_path / "run").predict(tmp_path / "7.tif").patches == counts[1]


def test_a_slide_without_tissue_is_named_and_can_be_left_out(table: Path, tmp_path: Path) -> None:
    write(tmp_path / "3.tif", seed=3, empty=True)
    with pytest.raises(DataError, match=r"3\.tif: no tissue: nothing stands out.*leave it out"):
        train(config(table), tmp_path / "run", console=CONSOLE)
    settings = config(table)
    found = bad_files(settings, settings.data, progress_bar(CONSOLE))  # type: ignore[arg-type]
    assert list(found) == ["3.tif"]


@pytest.mark.parametrize("setting", ["tissue=otsu", "scale=0.5", "level=1"])
def test_only_images_of_a_table_have_tissue_and_resolutions(setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"patches\.{name} with data\.kind=megapixel-mnist"):
        build_data(tiny(f"patches.{setting}"))


def test_the_check_tells_how_much_is_tissue(table: Path) -> None:
    report = check_config(config(table), progress_bar(CONSOLE))
    assert "% (from " in report.facts["patches with tissue"]
    assert not report.errors


def test_init_proposes_the_search_for_slides_with_glass(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.tif" for number in range(4)]
    rng = np.random.default_rng(0)
    for path in paths:
        pixels = rng.integers(240, 245, (1024, 1024, 3), dtype=np.uint8)
        pixels[100:400, 100:500] = rng.integers(60, 200, (300, 400, 3))
        scale = {"resolution": (20000, 20000), "resolutionunit": "CENTIMETER"}
        with tifffile.TiffWriter(path) as file:
            file.write(pixels, tile=(256, 256), photometric="rgb", **scale)
            file.write(pixels[::4, ::4], tile=(256, 256), photometric="rgb", subfiletype=1)
    found = survey(paths, progress_bar(CONSOLE))
    assert found.tissue is not None
    assert 0.1 < found.tissue < 0.6
    tifffile.imwrite(tmp_path / "flat.tif", pixels, photometric="rgb")
    assert survey([tmp_path / "flat.tif"], progress_bar(CONSOLE)).tissue is None
