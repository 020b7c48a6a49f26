"""A person's own table of files, from the CSV to a prediction."""

from __future__ import annotations

import io
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import ips
from ips.errors import ConfigError, DataError, ImageError, PatchError, RunError
from ips.training import build_data, evaluate, train
from tests.training import own_images
from tests.training.own_images import add_column, save_noise
from tests.training.tiny import own

CONSOLE = Console(quiet=True)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Eight pictures of different sizes, hence with different N, of two grades."""
    lines = ["path,grade"]
    for number in range(8):
        save_noise(tmp_path / f"{number}.png", seed=number, height=40 + 8 * number, width=50)
        lines.append(f"{number}.png,{'high' if number % 2 else 'low'}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return tmp_path / "labels.csv"


@pytest.fixture
def features(tmp_path: Path) -> Path:
    table = own_images.features(tmp_path, count=6)
    add_column(table, "split", ["train"] * 4 + ["test"] * 2)
    return table


def test_pictures_of_any_size(pictures: Path, tmp_path: Path) -> None:
    train(own(pictures), tmp_path / "run", console=CONSOLE)
    result = evaluate(tmp_path / "run", console=CONSOLE)
    assert set(result.scores) == {"grade"}
    assert result.model.config.tasks["grade"].names == ["high", "low"]
    predictor = ips.load(tmp_path / "run")
    prediction = predictor.predict(tmp_path / "7.png")
    assert len(prediction.indices) == 3
    assert predictor.answer("grade", prediction.probabilities["grade"]) in ("high", "low")


def test_stored_features(features: Path, tmp_path: Path) -> None:
    projector = {"name": "projector", "dim": 8}
    train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)
    prediction = ips.load(tmp_path / "run").predict(tmp_path / "5.h5")
    assert prediction.patches == 10
    assert prediction.coords.tolist() == [[2 * i, 2 * i + 1] for i in prediction.indices.tolist()]


def test_features_of_different_width_are_refused(features: Path, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "3.h5", "w") as file:
        file["features"] = np.zeros((4, 7), np.float32)
        file["coords"] = np.zeros((4, 2), np.int32)
    projector = {"name": "projector", "dim": 8}
    with pytest.raises(PatchError, match=r"12 features per patch and 3\.h5 has 7"):
        train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)


def test_an_encoder_that_does_not_suit_the_data_is_refused(features: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use projector for stored features"):
        train(own(features), tmp_path / "run", console=CONSOLE)


def test_a_label_for_a_missing_file_is_refused(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "3.png").unlink()
    with pytest.raises(DataError, match=r"3\.png"):
        train(own(pictures), tmp_path / "run", console=CONSOLE)


def test_a_split_column_needs_both_sides(features: Path, tmp_path: Path) -> None:
    features.write_text(features.read_text().replace("test", "train"))
    with pytest.raises(DataError, match="no row has 'test'"):
        train(own(features), tmp_path / "run", console=CONSOLE)


def test_a_damaged_picture_is_one_sentence_whoever_reads_it(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ips.training.run.check_files", lambda *_: None)  # damaged after the check
    for number in range(8):
        path = tmp_path / f"{number}.png"
        path.write_bytes(path.read_bytes()[:500])
    messages = []
    for workers in (0, 1):
        settings = {"epochs": 1, "batch": 2, "workers": workers, "warmup": 0}
        eager = own(pictures, train=settings, select={"keep": 3, "load": "eager"})
        with pytest.raises(ImageError) as caught:
            train(eager, tmp_path / f"run{workers}", console=CONSOLE)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "\n" not in messages[1]


def test_bad_files_of_any_split_are_refused_before_training(features: Path, tmp_path: Path) -> None:
    projector = {"name": "projector", "dim": 8}
    with h5py.File(tmp_path / "5.h5", "r+") as file:  # a test image
        file["features"][3, 2] = np.nan
    message = r"5\.h5: the features of patch 3 are not finite: extract it again"
    with pytest.raises(DataError, match=f"^{message}$"):
        train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)
    with h5py.File(tmp_path / "0.h5", "r+") as file:
        file["features"][0, 0] = np.inf
    with pytest.raises(DataError, match=r"^2 of 6 files cannot be used: 0\.h5.*; 5\.h5"):
        train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)
    assert not (tmp_path / "run").exists()


def test_pictures_with_other_channels_are_refused_before_training(
    pictures: Path, tmp_path: Path
) -> None:
    Image.new("L", (60, 50)).save(tmp_path / "3.png")
    as_is = {"size": 16, "channels": "as-is"}
    with pytest.raises(DataError, match=r"16 x 16 px with 3 channels and those of 3\.png"):
        train(own(pictures, patches=as_is), tmp_path / "run", console=CONSOLE)


def test_equal_training_labels_are_refused_and_a_missing_class_is_named(
    features: Path, tmp_path: Path
) -> None:
    projector = {"name": "projector", "dim": 8}
    text = features.read_text()
    features.write_text(text.replace(",1,train", ",0,train"))
    with pytest.raises(DataError, match="'grade': the 3 training images have only class 0"):
        train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)
    features.write_text(text.replace(",0,test", ",1,test"))
    shown = Console(file=io.StringIO(), width=200)
    train(own(features, encoder=projector), tmp_path / "run", console=shown)
    assert "warning: task 'grade': no test image has the class 0" in shown.file.getvalue()  # type: ignore[attr-defined]


def test_a_table_of_excel_in_its_own_encoding(features: Path, tmp_path: Path) -> None:
    text = features.read_text().replace(",0", ",größer").replace(",1", ",kleiner")
    features.write_bytes(text.encode("cp1252"))
    shown = Console(file=io.StringIO(), width=200)
    projector = {"name": "projector", "dim": 8}
    model = train(own(features, encoder=projector), tmp_path / "run", console=shown)
    assert model.config.tasks["grade"].names == ["größer", "kleiner"]
    assert "Windows-1252: if 'größer' looks wrong" in shown.file.getvalue()  # type: ignore[attr-defined]


def with_patients(table: Path) -> None:
    """Four patients of two pictures each."""
    add_column(table, "Patient", [f"p{number // 2}" for number in range(8)])


def split_of(table: Path, **data: object) -> dict[str, list[str]]:
    settings = own(table, data={"kind": "table", "csv": str(table), **data})
    splits: dict[str, list[str]] = {"train": [], "validation": [], "test": []}
    for path, _, split in build_data(settings).table:
        splits[split].append(path)
    return splits


def test_no_split_divides_a_patient(pictures: Path) -> None:
    with_patients(pictures)
    for seed in range(5):
        splits = split_of(pictures, seed=seed, test=0.25, validation=0.33)
        assert [len(paths) for paths in splits.values()] == [4, 2, 2]
        for paths in splits.values():
            patients = {int(Path(path).stem) // 2 for path in paths}
            assert 2 * len(patients) == len(paths)
    free = [split_of(pictures, seed=seed, group="none")["test"] for seed in range(5)]
    assert any(int(Path(a).stem) // 2 != int(Path(b).stem) // 2 for a, b in free)


def test_without_validation_its_images_are_for_training(pictures: Path) -> None:
    add_column(
        pictures, "split", ["train", "val", "train", "test", "train", "val", "train", "test"]
    )
    assert split_of(pictures)["validation"] == ["1.png", "5.png"]
    splits = split_of(pictures, validation=0)
    assert splits["train"] == ["0.png", "1.png", "2.png", "4.png", "5.png", "6.png"]
    assert splits["test"] == ["3.png", "7.png"]
    assert splits["validation"] == []


def test_a_column_that_divides_a_patient_is_refused(pictures: Path, tmp_path: Path) -> None:
    with_patients(pictures)
    splits = ["train", "train", "train", "test", "val", "val", "test", "test"]
    add_column(pictures, "split", splits)
    with pytest.raises(DataError, match=r"its split divides 1 of 4 patients or groups \(p1\)"):
        train(own(pictures), tmp_path / "run", console=CONSOLE)
    assert len(split_of(pictures, group="none")["train"]) == 3


def test_the_split_is_recorded_and_an_image_of_training_is_no_test_image(
    pictures: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(own(pictures), run, console=CONSOLE)
    header, *rows = (run / "split.csv").read_text().splitlines()
    assert header == "path,group,split"
    splits = [row.rpartition(",")[2] for row in rows]
    assert [splits.count(name) for name in ("train", "validation", "test")] == [5, 1, 2]
    evaluate(run, console=CONSOLE)
    known = next(row.partition(",")[0] for row in rows if row.endswith(",train"))
    lines = pictures.read_text().splitlines()[1:]
    marked = [f"{line},{'test' if line.startswith(known) else 'train'}" for line in lines]
    pictures.write_text("\n".join(["path,grade,split", *marked]))
    with pytest.raises(RunError, match=f"1 test images, such as {known}, were used to train"):
        evaluate(run, console=CONSOLE)


def test_an_undefined_score_is_null(features: Path, tmp_path: Path) -> None:
    features.write_text(features.read_text().replace(",0,test", ",1,test"))
    sections = {
        "encoder": {"name": "projector", "dim": 8},
        "tasks": {"grade": {"kind": "binary"}},
    }
    train(own(features, **sections), tmp_path / "run", console=CONSOLE)
    result = evaluate(tmp_path / "run", console=CONSOLE)
    assert result.scores == {"grade": None}
    assert result.undefined == {"grade": "only class 1 in the test set"}
    stored = json.loads((tmp_path / "run/test.json").read_text())["grade"]
    assert stored["score"] is None
    assert stored["verdict"] == "cannot be judged: only class 1 in the test set"


def test_a_feature_file_without_places_is_refused_before_training(
    features: Path, tmp_path: Path
) -> None:
    for number in range(6):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file["feats"] = np.zeros((4, 12), np.float32)
            file["coords"] = np.zeros((4, 2), np.float32)
            file.attrs.update(extractor="x", unit="um", tile_size_um=256.0, tile_size_px=224)
    projector = {"name": "projector", "dim": 8}
    with pytest.raises(PatchError, match=r"patches\.slide_mpp"):
        train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)
    assert not (tmp_path / "run").exists()


def test_weights_for_a_projector_are_refused(features: Path, tmp_path: Path) -> None:
    projector = {"name": "projector", "dim": 8, "weights": "resnet.pth"}
    with pytest.raises(ConfigError, match=r"resnet\.pth with encoder\.name=projector"):
        train(own(features, encoder=projector), tmp_path / "run", console=CONSOLE)
