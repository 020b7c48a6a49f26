"""Attention of a test against the objects of its images, compared with single predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from rich.console import Console

from ips.config import Config
from ips.config_io import parse_config
from ips.data.regions import patches_on
from ips.errors import DataError
from ips.localisation import Localisation, average_precision
from ips.models import Net
from ips.predictor import Predictor
from ips.training import Processes, build_data, build_model, evaluate, resolve, train
from ips.training.data import Data
from ips.training.localiser import Localiser
from ips.training.module import Learner
from ips.training.testing import predict_split
from tests.training import own_images
from tests.training.tiny import own, tiny

CONSOLE = Console(quiet=True)

ROADS: dict[str, Any] = {
    "data": {"kind": "road-signs", "width": 320, "height": 240, "train": 4, "test": 7},
    "patches": {"size": 40, "stride": 20},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "norm": True},
    "select": {"keep": 12, "chunk": 8},
    "aggregate": {"heads": 4},
    "train": {"epochs": 1, "batch": 4, "warmup": 0},
    "tasks": {"sign": {"kind": "multiclass", "classes": 4}},
}


def localised(net: Net, config: Config, data: Data) -> dict[str, Localisation]:
    """Where the attention of a model is on the test images, as a test of it measures."""
    localiser = Localiser.for_data(net, data.test)
    assert localiser is not None
    learner = Learner(net, config, localiser=localiser)
    predictions = predict_split(learner, data, _progress(), Processes())
    return localiser.results(predictions)


@pytest.mark.parametrize("method", ["ips", "rps", "topmil", "deepmil", "dps", "cnn"])
def test_scores_agree_with_those_of_single_predictions(method: str) -> None:
    changes: dict[str, Any] = {"method": method}
    if method == "deepmil":
        changes["select"] = {"keep": None}
    config = parse_config(ROADS | changes, source="test")
    data = build_data(config)
    config = resolve(config, data)
    net = build_model(config).eval()
    result = localised(net, config, data)["sign"]

    predictor = Predictor(net, config)
    tops, precisions, reached = [], [], []
    for number in range(len(data.test)):
        found = predictor.predict(data.test[number][0])
        source = net.own_patches(found.source)
        assert source.extent is not None
        for region in data.test.objects(number, "sign"):  # type: ignore[attr-defined]
            on = patches_on(region, source.coords, extent=source.extent)
            best = found.indices[found.task_attention["sign"].argmax()]
            tops.append(int(best) in on)
            reached.append(bool(set(on.tolist()) & set(found.indices.tolist())))
            truth = np.isin(np.arange(len(source)), on)
            precisions.append(average_precision(found.all_attention["sign"], truth))
    assert result.images == result.objects == len(tops) > 3
    assert result.measures["pointing"].value == pytest.approx(np.mean(tops))
    assert result.measures["average_precision"].value == pytest.approx(
        np.nanmean(precisions), abs=1e-4
    )
    recall = result.measures["recall"]
    if method == "deepmil":
        assert not recall.defined  # it keeps all patches
    else:
        assert recall.value == pytest.approx(np.mean(reached))


def _progress() -> Any:
    from ips.progress import progress_bar

    return progress_bar(CONSOLE)


def test_a_test_stores_the_scores_of_every_task(tmp_path: Path) -> None:
    config = tiny("train.epochs=1", "train.warmup=0")
    model = train(config, tmp_path / "run", console=CONSOLE)
    found = evaluate(tmp_path / "run", model=model, console=CONSOLE)
    stored = json.loads((tmp_path / "run" / "test.json").read_text())
    assert set(found.localisation) == {"majority", "multi"}
    for task, result in found.localisation.items():
        assert stored[task]["localisation"] == result.as_dict()
        assert (result.images, result.objects) == (6, 30)


def features_with_boxes(folder: Path) -> Path:
    """Feature files on a grid of 4 x 3 patches of 16 px, with a box around the patch 5."""
    table = own_images.features(folder)
    for number in range(12):
        with h5py.File(folder / f"{number}.h5", "r+") as file:
            for name in ("features", "coords"):
                del file[name]
            rng = np.random.default_rng(number)
            file["features"] = rng.standard_normal((12, 12)).astype(np.float32)
            x, y = np.meshgrid(np.arange(4) * 16, np.arange(3) * 16)
            file["coords"] = np.stack([x.ravel(), y.ravel()], axis=1)
    lines = [f"{number}.h5,16,16,32,32" for number in range(0, 12, 2)]
    (folder / "boxes.csv").write_text("\n".join(["path,left,top,right,bottom", *lines]))
    return table


@pytest.mark.parametrize("load", ["eager", "sequential", "lazy"])
def test_features_are_found_where_they_are(tmp_path: Path, load: str) -> None:
    """A batch of features in memory has no coordinates, but its files have."""
    table = features_with_boxes(tmp_path)
    config = own(
        table,
        data={"kind": "table", "csv": str(table), "objects": str(tmp_path / "boxes.csv")},
        encoder={"name": "projector", "dim": 8},
        select={"keep": 3, "chunk": 4, "load": load},
    )
    data = build_data(config)
    config = resolve(config, data)
    net = build_model(config).eval()
    result = localised(net, config, data)["grade"]
    assert result.chance == pytest.approx(1 / 12)
    predictor = Predictor(net, config)
    expected = []
    for number in range(len(data.test)):
        if data.test.objects(number, "grade"):  # type: ignore[attr-defined]
            seen = predictor.predict(data.test[number][0])
            expected.append(int(seen.indices[seen.task_attention["grade"].argmax()]) == 5)
    assert len(expected) == result.images
    assert result.measures["pointing"].value == np.mean(expected)


def test_a_table_without_objects_has_no_localisation(tmp_path: Path) -> None:
    data = build_data(own(own_images.photographs(tmp_path)))
    net = build_model(resolve(own(tmp_path / "labels.csv"), data))
    assert Localiser.for_data(net, data.test) is None


def test_a_wrong_box_is_refused_before_training(tmp_path: Path) -> None:
    table, boxes = own_images.photographs(tmp_path), tmp_path / "boxes.csv"
    section = {"kind": "table", "csv": str(table), "objects": str(boxes)}
    boxes.write_text("path,left,top,right,bottom\n3.png,5,5,41,20\n")
    with pytest.raises(DataError, match=r"boxes\.csv, line 2: .* not inside the image of 40 x 40"):
        train(own(table, data=section), tmp_path / "run", console=CONSOLE)
    boxes.write_text("path,left,top,right,bottom\n3.png,5,5,5,20\n")
    with pytest.raises(DataError, match=r"boxes\.csv, line 2: the box 5, 5, 5, 20 is empty"):
        build_data(own(table, data=section))


def test_samples_of_patches_keep_their_objects(tmp_path: Path) -> None:
    table, boxes = own_images.photographs(tmp_path), tmp_path / "boxes.csv"
    boxes.write_text(
        "path,left,top,right,bottom\n" + "".join(f"{i}.png,1,1,5,5\n" for i in range(12))
    )
    config = own(
        table,
        data={"kind": "table", "csv": str(table), "objects": str(boxes)},
        patches={"size": 16, "sample": 2},
    )
    data: Data = build_data(config)
    assert len(data.test.objects(0, "grade")) == 1  # type: ignore[attr-defined]
