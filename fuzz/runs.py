"""Files of run folders: models, weights, checkpoints, settings, logs and results."""

from __future__ import annotations

import atexit
import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import ips.loading
from fuzz.corrupt import damage
from fuzz.family import Family, Reading, Seed
from fuzz.formats import edit_safetensors, in_zip
from fuzz.images import PATCH, digest
from fuzz.tables import CONFIG, TEXT, images
from fuzz.text import edit_text, edit_yaml
from ips.config import Config
from ips.config_io import parse_config, write_yaml
from ips.experiments.definitions import EXPERIMENTS
from ips.experiments.efficiency import Cost
from ips.experiments.runner import Plan, read_results
from ips.nn import build_encoder
from ips.nn.weights import encoder_settings
from ips.predictions import (
    TaskPredictions,
    TestPredictions,
    read_predictions,
    write_predictions,
)
from ips.pretraining.settings import Settings, save_encoder
from ips.pretraining.train import pretrain
from ips.report.curves import draw_curves, read_log
from ips.report.snapshots import Snapshot, append_snapshot, read_snapshots
from ips.tasks import build_tasks
from ips.training import train

RUN = "my_run"
_TABLE = b"path,grade,split\na.png,high,train\nb.png,low,train\nc.png,low,test\n"
_PLAIN = "its bytes are the numbers, without a checksum"


@cache
def data_folder() -> Path:
    """Folder of the pictures and labels to train with, removed at the end of the process."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-data-")
    atexit.register(folder.cleanup)
    for name, data in (images("a.png", "b.png", "c.png") | {"labels.csv": _TABLE}).items():
        (Path(folder.name) / name).write_bytes(data)
    return Path(folder.name)


@cache
def config() -> Config:
    """The config of a training of one epoch."""
    values = CONFIG | {"data": {"kind": "table", "csv": str(data_folder() / "labels.csv")}}
    values |= {"train": CONFIG["train"] | {"epochs": 1}}
    return parse_config(values, source="fuzz")


def weights(net: nn.Module) -> list[str]:
    """Hashes of all tensors of a network."""
    return [digest(tensor.numpy()) for tensor in net.state_dict().values()]


@cache
def run_folder() -> dict[str, bytes]:
    """The files of a trained run, by their path."""
    return {name: data for name, data in _trained().items() if "tensorboard" not in name}


def _trained() -> dict[str, bytes]:
    """The files of a run folder; a process of its own ends with the threads of its libraries."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        child = get_context("spawn").Process(target=train, args=(config(), Path(name) / RUN))
        child.start()
        child.join()
        if child.exitcode:
            raise RuntimeError(f"the training of the run to corrupt ended with {child.exitcode}")
        files = [path for path in Path(name).rglob("*") if path.is_file()]
        return {path.relative_to(name).as_posix(): path.read_bytes() for path in files}


def _read_model(path: Path) -> Reading:
    """Load a model and predict an image with it, as `ips predict` does."""
    predictor = ips.loading.load(path.parent)
    explanation = predictor.predict(data_folder() / "c.png")
    values = weights(predictor.net), explanation.class_probabilities
    return Reading(predictor.config.model_dump(mode="json"), values)


def _read_weights(path: Path) -> Reading:
    settings = encoder_settings(path)
    built = build_encoder("thin-resnet", weights=path, stages=1, width=4, inputs=3)
    return Reading(settings, weights(built.net))


def _resume(path: Path) -> Reading:
    """Resume a training, as `ips train --resume` does."""
    folder = path
    while folder.name != RUN:
        folder = folder.parent
    model = train(config(), folder, resume=True)
    return Reading(model.config.select, weights(model.net))


def _read_metrics(path: Path) -> Reading:
    """Read the log of a training as the report and the figures do."""
    log = read_log(path)
    if log:
        draw_curves(path, path.with_suffix(".png"))
    return Reading(list(log), {name: values.tolist() for name, values in log.items()})


def _read_predictions(path: Path) -> Reading:
    """Read stored predictions; None means that the test is repeated."""
    found = read_predictions(path, config())
    if found is None:
        return _predictions_reading(_predictions())
    found.best_and_worst(2)
    return _predictions_reading(found)


def _predictions_reading(found: TestPredictions) -> Reading:
    (task,) = found.tasks
    return Reading(found.images, (task.labels.tolist(), task.probabilities.tolist()))


@cache
def _predictions() -> TestPredictions:
    task = build_tasks(config().tasks)["grade"]
    labels, probabilities = np.eye(2, dtype=bool), np.array([[0.75, 0.25], [0.5, 0.5]])
    return TestPredictions(
        ["a.png", "b.png"], [TaskPredictions("grade", task, labels, probabilities)]
    )


def _read_snapshots(path: Path) -> Reading:
    found = read_snapshots(path, image="a.png")
    values = [
        (s.epoch, s.extent, s.indices.tolist(), s.coords.tolist(), s.attention.tolist(), s.entropy)
        for s in found
    ]
    return Reading(len(found), values)


def _read_pretraining(path: Path) -> Reading:
    """Resume a finished pretraining, which compares the settings."""
    encoder = pretrain(_pretraining(), run=path.parent, resume=True)
    return Reading(encoder is not None and encoder.name)


def _pretraining() -> Settings:
    files = (data_folder() / "a.png",)
    return Settings(data=files, patch_size=PATCH, encoder="thin-resnet", stages=1, width=4, batch=4)


def _read_experiment(path: Path) -> Reading:
    """Read the results of an experiment, as `ips experiment` does before it continues."""
    folder = path
    while folder.name != RUN:
        folder = folder.parent
    results = read_results(_plan(folder))
    return Reading([(r.arm.label, r.seed, r.name) for r in results], [r.value for r in results])


def _plan(folder: Path) -> Plan:
    return Plan(EXPERIMENTS["ips-deepmil"], "laptop", 1, folder)


def _experiment() -> dict[str, bytes]:
    plan = _plan(Path(RUN))
    arm = plan.experiment.arms("laptop")[0]
    settings = plan.config(arm, 0).model_dump(mode="json")
    cost = {"cost": vars(Cost(1.5, 2.0, 3.0)), "computed": False}
    conditions = {"steps": plan.steps, "limit_gb": plan.limit_gb, "config": settings}
    run = plan.run(arm, 0)
    values: dict[str, Any] = {
        f"{run}/asked.json": settings,
        f"{run}/test.json": {"majority": {"metric": "accuracy", "score": 0.5}, "max": 0.25},
        f"{RUN}/costs/{arm.slug}.json": conditions | cost,
    }
    return {name: json.dumps(content, indent=2).encode() for name, content in values.items()}


def _written(write: Callable[[Path], None]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


def _snapshots(path: Path) -> None:
    corners = np.array([[0, 0], [16, 0]])
    for epoch in (1, 2):
        attention = np.array([0.25, 0.75])
        append_snapshot(path, Snapshot("a.png", epoch, np.arange(2), corners, PATCH, attention))


def _torch_file(values: Any) -> bytes:
    out = io.BytesIO()
    torch.save(values, out)
    return out.getvalue()


def families() -> list[Family]:
    """All families of run folders."""
    run = run_folder()
    encoder = build_encoder("thin-resnet", stages=1, width=4, inputs=3).net
    state = encoder.state_dict()
    pretrained = _written(lambda path: save_encoder(encoder, _pretraining(), path))  # type: ignore[arg-type]
    model, checkpoint = f"{RUN}/model.safetensors", f"{RUN}/checkpoints/last.ckpt"
    unfinished = {name: data for name, data in run.items() if name != model}
    settings = _written(lambda path: write_yaml(_pretraining().values() | {"slides": 1}, path))
    pretraining = {f"{RUN}/encoder.safetensors": pretrained}
    experiment = _experiment()
    return [
        Family("model", (Seed("run", model, run[model], _read_model, run),), edit=edit_safetensors),
        Family(
            "weights-safetensors",
            (Seed("encoder", "encoder.safetensors", pretrained, _read_weights),),
            *(edit_safetensors, _PLAIN, _PLAIN),
        ),
        Family(
            "weights-pth",
            (
                Seed("state", "encoder.pth", _torch_file(state), _read_weights),
                Seed("nested", "encoder.pth", _torch_file({"state_dict": state}), _read_weights),
            ),
            *(in_zip(damage), _PLAIN),
        ),
        Family(
            "checkpoint",
            (Seed("last", checkpoint, unfinished[checkpoint], _resume, unfinished),),
            edit=in_zip(damage),
        ),
        Family(
            "run-config",
            (Seed("run", f"{RUN}/config.yaml", run[f"{RUN}/config.yaml"], _resume, run),),
            *(edit_yaml, TEXT, TEXT),
        ),
        Family(
            "pretraining-config",
            (Seed("run", f"{RUN}/config.yaml", settings, _read_pretraining, pretraining),),
            *(edit_yaml, TEXT, TEXT),
        ),
        Family(
            "metrics",
            (Seed("log", "metrics.csv", run[f"{RUN}/metrics.csv"], _read_metrics),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "predictions",
            (
                Seed(
                    "csv",
                    "predictions.csv",
                    _written(lambda path: write_predictions(path, _predictions())),
                    _read_predictions,
                ),
            ),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "evolution",
            (Seed("jsonl", "evolution.jsonl", _written(_snapshots), _read_snapshots),),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "experiment",
            tuple(
                Seed(Path(name).stem[:9], name, data, _read_experiment, experiment)
                for name, data in experiment.items()
            ),
            *(edit_text, TEXT, TEXT),
        ),
    ]
