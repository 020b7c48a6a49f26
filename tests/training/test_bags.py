"""Patients with several images: bags, averages, and splits that never divide one."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, get_args

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ips.data.split import SPLIT_NUMBERS, Split
from ips.errors import ConfigError, DataError
from ips.models import Load, SelectingNet
from ips.nn import Aggregated, Head
from ips.patches import PatchSource
from ips.predictions import read_predictions
from ips.training.data import Data, build_data
from ips.training.folds import fold_configs, stored_or_new, summarise
from ips.training.run import train
from ips.training.testing import evaluate
from tests.training.own_images import add_column, features, photographs
from tests.training.tiny import own

Bags = Literal["image", "group", "average"]
BAGS: tuple[Bags, ...] = get_args(Bags)
RED, BLUE = (3.0, 0.0), (0.0, 3.0)


def patients(table: Path, *, images: int = 2, count: int = 12) -> None:
    add_column(table, "patient", [f"p{number // images}" for number in range(count)])


def alike(table: Path, *, images: int = 2) -> None:
    """Give the images of a patient the same label."""
    head, *lines = table.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    for number, row in enumerate(rows):
        row[1] = str(number // images % 2)
    table.write_text("\n".join([head, *(",".join(row) for row in rows)]))


def table_of(folder: Path, *, images: int = 2) -> Path:
    table = features(folder)
    alike(table, images=images)
    patients(table, images=images)
    return table


def splits_of(data: Data) -> dict[str, set[str]]:
    """The splits of each patient."""
    found: dict[str, set[str]] = {}
    for _, patient, split in data.table:
        found.setdefault(patient, set()).add(split)
    return found


def names(source: PatchSource) -> list[str]:
    return [part.name for part in source.parts]


def settings(table: Path, bags: str, **data: Any) -> dict[str, Any]:
    return {"kind": "table", "csv": str(table), "bags": bags, **data}


@pytest.mark.parametrize("bags", BAGS)
@pytest.mark.parametrize(
    "way", ["column", "column without validation", "fractions", "folds", "repeated folds"]
)
def test_no_split_divides_a_patient(tmp_path: Path, way: str, bags: Bags) -> None:
    table = table_of(tmp_path)
    data: dict[str, Any] = {"test": 0.34, "validation": 0.3}
    if way.startswith("column"):
        words = ["train", "train", "train", "train", "test", "val"]
        if way != "column":
            words[-1] = "train"
        add_column(table, "split", [word for word in words for _ in range(2)])
    runs = [data]
    if "folds" in way:
        repeat = 2 if way == "repeated folds" else 1
        runs = [data | {"folds": 2, "fold": fold, "repeat": repeat} for fold in (1, 2)]
    for seed in (0, 1):
        for each in runs:
            built = build_data(own(table, data=settings(table, bags, seed=seed, **each)))
            splits = splits_of(built)
            assert len(splits) == 6
            assert all(len(found) == 1 for found in splits.values()), splits
            assert {split for found in splits.values() for split in found} == {
                *("train", "validation", "test")
            }
            shown = {
                name: {part for source in sources(built, name) for part in names(source)}
                for name in SPLIT_NUMBERS
            }
            files = [file for found in shown.values() for file in found]
            assert len(files) == len(set(files)) == 12


def sources(built: Data, split: Split) -> list[PatchSource]:
    return [built.split(split)[number][0] for number in range(len(built.split(split)))]


@pytest.mark.parametrize("bags", BAGS)
def test_a_split_column_that_divides_patients_is_refused_with_their_names(
    tmp_path: Path, bags: Bags
) -> None:
    table = table_of(tmp_path)
    words = ["train"] * 12
    words[3], words[7], words[10], words[11] = "test", "val", "test", "test"
    add_column(table, "split", words)
    with pytest.raises(DataError, match=r"divides 2 of 6 patients or groups \(p1, p3\)"):
        build_data(own(table, data=settings(table, bags)))


def test_the_split_is_the_same_whatever_a_bag_is(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first, *others = (build_data(own(table, data=settings(table, bags))) for bags in BAGS)
    assert all(other.table == first.table for other in others)


@pytest.mark.parametrize("bags", ["group", "average"])
def test_patients_need_a_column(tmp_path: Path, bags: str) -> None:
    table = features(tmp_path)
    with pytest.raises(DataError, match=rf"data\.bags={bags} needs a column of patients"):
        build_data(own(table, data=settings(table, bags)))
    patients(table)
    with pytest.raises(DataError, match="needs a column of patients"):
        build_data(own(table, data=settings(table, bags, group="none")))


@pytest.mark.parametrize("bags", ["group", "average"])
def test_different_labels_of_one_patient_are_refused_with_the_names(
    tmp_path: Path, bags: str
) -> None:
    table = features(tmp_path)  # the label changes from row to row
    patients(table, images=3)
    with pytest.raises(DataError, match=r"4 of 4 patients .* different labels .*'grade' \(p0, p1"):
        build_data(own(table, data=settings(table, bags)))
    assert len(build_data(own(table, data=settings(table, "image"))).table) == 12


@pytest.mark.parametrize("method", ["cnn", "dps"])
def test_methods_of_whole_images_need_one(tmp_path: Path, method: str) -> None:
    table = table_of(tmp_path)
    with pytest.raises(ConfigError, match=f"method={method} with data.bags=group"):
        own(table, data=settings(table, "group"), method=method)
    with pytest.raises(ConfigError, match=f"method={method} with patches.magnification"):
        own(table, patches={"magnification": [20, 5]}, method=method)


def test_a_bag_has_the_patches_of_all_images_of_a_patient(tmp_path: Path) -> None:
    table = photographs(tmp_path)
    alike(table, images=3)
    patients(table, images=3)
    data = build_data(own(table, data=settings(table, "group")))
    counts = [len(split) for split in (data.train, data.test)]
    assert sum(counts) + len(data.validation or ()) == 4
    for number in range(len(data.train)):
        source, labels = data.train[number]
        assert len(source.parts) == 3
        assert len(source) == 3 * 4
        assert source.name == f"p{int(names(source)[0].removesuffix('.png')) // 3}"
        assert labels["grade"] == int(source.name[1:]) % 2
    assert len(data.labels["train"]) == len(data.train)


def test_at_most_so_many_patches_of_each_image_are_sampled(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    config = own(table, data=settings(table, "group"), patches={"sample": 6})
    source, _ = build_data(config).train[0]
    assert [len(part) for part in source.by_part()] == [
        min(6, 5 + int(name.removesuffix(".h5"))) for name in names(source)
    ]


def opposites(folder: Path, *, count: int = 24) -> Path:
    """Patients of two images; positive if one of them shows red and the other one blue.

    A single image says nothing: half of the patients with it are positive.
    """
    rng = np.random.default_rng(0)
    kinds = {(RED, BLUE): 1, (RED, RED): 0, (BLUE, RED): 1, (BLUE, BLUE): 0}
    lines = ["path,grade,patient,split"]
    pairs = zip(range(count), cycle(kinds.items()), cycle([*["train"] * 8, *["test"] * 4]))
    for number, (pair, label), split in pairs:
        for place, mark in enumerate(pair):
            rows = 0.1 * rng.standard_normal((4 + number % 3, 2))
            rows[0] += mark
            name = f"{number}-{place}.h5"
            with h5py.File(folder / name, "w") as file:
                file["features"] = rows.astype(np.float32)
                file["coords"] = np.arange(2 * len(rows)).reshape(-1, 2)
            lines.append(f"{name},{label},p{number},{split}")
    table = folder / "opposites.csv"
    table.write_text("\n".join(lines))
    return table


class Maxima(nn.Module):
    """Keeps the patches with the strongest marks, and takes the maximum of each feature."""

    channels, description = 1, "maxima"

    def scorer(self) -> Callable[[Tensor], Tensor]:
        return lambda x: x.sum(dim=1, keepdim=True)

    def forward(self, x: Tensor, mask: Tensor) -> Aggregated:
        x = x.masked_fill(~mask[..., None], -torch.inf)
        even = mask / mask.sum(dim=1, keepdim=True)  # (B, M)
        return Aggregated(x.amax(dim=1, keepdim=True), even[:, None, None])


def red_and_blue() -> SelectingNet:
    """A model whose logit is positive where it sees both colours."""
    head = Head(2, 1, activation="sigmoid")
    last = head[-1]
    assert isinstance(last, nn.Linear)
    nn.init.constant_(last.weight, 1.0)
    nn.init.constant_(last.bias, -4.5)
    return SelectingNet(nn.Identity(), Maxima(), {"grade": head}, keep=2, chunk=2)


@pytest.mark.parametrize("load", ["eager", "sequential", "lazy"])
def test_only_the_union_of_two_images_of_a_patient_decides(tmp_path: Path, load: Load) -> None:
    table, net = opposites(tmp_path), red_and_blue()
    options: dict[str, Any] = {"encoder": {}, "tasks": {"grade": {"kind": "binary"}}}
    data = build_data(own(table, data=settings(table, "group", validation=0), **options))
    images = build_data(own(table, data=settings(table, "average", validation=0), **options))
    right = {"group": 0, "average": 0}
    for number, numbers in enumerate(images.averaged["test"].values()):
        source, labels = data.test[number]
        found = net.predict_batch([source], load=load)[0]
        right["group"] += bool(found.probabilities["grade"] > 0.5) == bool(labels["grade"])
        second = source.parts[1].patches.start
        assert sorted((found.indices >= second).tolist()) == [False, True]  # one of each image
        alone = [net.predict(images.test[i][0]).probabilities["grade"] for i in numbers]
        mean = torch.stack(alone).mean()
        right["average"] += bool(mean > 0.5) == bool(labels["grade"])
    assert right == {"group": 8, "average": 4}  # of 8, and half is chance


def test_averaged_scores_are_those_of_patients(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    config = own(table, data=settings(table, "average", test=0.34), encoder={})
    train(config, tmp_path / "run")
    found = evaluate(tmp_path / "run").predictions
    single = evaluate_images(config, tmp_path)
    data = build_data(config)
    assert found.images == list(data.averaged["test"])
    for patient, numbers in data.averaged["test"].items():
        row = found.tasks[0].probabilities[found.images.index(patient)]
        np.testing.assert_allclose(row, single[numbers].mean(axis=0), rtol=1e-6)


def evaluate_images(config: Any, folder: Path) -> np.ndarray:
    """Probabilities of each test image, predicted by itself."""
    from ips.loading import load

    data, predictor = build_data(config), load(folder / "run")
    rows = []
    for number in range(len(data.test)):
        p = predictor.predict(data.test[number][0]).probabilities["grade"]
        rows.append(predictor.tasks["grade"].class_probabilities(p).double().numpy())
    return np.array(rows)


@pytest.mark.parametrize("bags", ["group", "average"])
def test_folds_predict_every_patient_once(tmp_path: Path, bags: str) -> None:
    table = table_of(tmp_path)
    config = own(table, data=settings(table, bags, test=0.34), encoder={})
    run = tmp_path / "run"
    folds = []
    for each, folder in fold_configs(config, run, folds=2):

        def once(config: Any, run: Path, data: Data) -> Any:
            train(config, run, data=data)
            return evaluate(run, data=data)

        folds.append(stored_or_new(each, folder, once, resume=False))
    summarise(run, folds)
    every = {patient for patient, splits in splits_of(build_data(config)).items()}
    stored = read_predictions(run / "out_of_fold.csv", _resolved(run))
    test = read_predictions(run / "predictions.csv", _resolved(run))
    assert stored is not None
    assert test is not None
    assert sorted([*stored.images, *test.images]) == sorted(every)


def _resolved(run: Path) -> Any:
    from ips.training import load_model

    return load_model(run / "fold-1").config


@pytest.mark.parametrize("load", ["eager", "sequential"])
def test_every_way_to_load_gives_the_same_model(tmp_path: Path, load: str) -> None:
    table = table_of(tmp_path)
    select = {"keep": 3, "chunk": 4, "load": load}
    config = own(table, data=settings(table, "group"), select=select, encoder={})
    first = train(config, tmp_path / load)
    lazy = train(own(table, data=settings(table, "group"), encoder={}), tmp_path / "reference")
    pairs = zip(first.net.state_dict().values(), lazy.net.state_dict().values(), strict=True)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in pairs)
