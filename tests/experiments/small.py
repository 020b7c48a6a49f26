"""A small experiment, for tests of everything round the trainings."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from ips.experiments import Plan
from ips.experiments.arms import Arm, Experiment

TINY = [
    "data.side=112",
    "data.train=4",
    "data.test=4",
    "data.validation=4",
    "patches.size=28",
    "train.epochs=1",
    "train.batch=2",
    "train.warmup=0",
    "encoder.width=16",
    "encoder.stages=1",
    "patches.stride=28",
]


def quiet() -> Console:
    return Console(file=io.StringIO())


SMALL = Experiment(
    "small",
    "two methods on tiny images",
    {"laptop": "megapixel-mnist"},
    lambda scale: [
        Arm(label, (f"method={label}", "select.keep=2"), {"M": "2", "N": "16"})
        for label in ("rps", "topmil")
    ],
    common={"laptop": tuple(TINY)},
)


def plan(folder: Path, experiment: Experiment = SMALL, **changes: object) -> Plan:
    values: dict[str, object] = {
        "experiment": experiment,
        "scale": "laptop",
        "seeds": 2,
        "folder": folder,
        "costs": False,
    }
    return Plan(**(values | changes))  # type: ignore[arg-type]
