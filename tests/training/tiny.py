"""Configs that train in a second, for tests of everything round the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ips.config import Config
from ips.config_io import override, parse_config

TINY: dict[str, Any] = {
    "data": {"kind": "megapixel-mnist", "side": 200, "train": 12, "test": 6},
    "patches": {"size": 50},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "norm": True},
    "select": {"keep": 4, "chunk": 4},
    "aggregate": {"heads": 4, "position": True},
    "train": {"epochs": 3, "batch": 4, "warmup": 0.5},
    "tasks": {
        "majority": {"kind": "multiclass", "classes": 10},
        "multi": {"kind": "multilabel", "classes": 10},
    },
    "readout": "multi",
}


def tiny(*settings: str) -> Config:
    """The tiny config with some settings changed."""
    return parse_config(override(TINY, settings), source="tiny")


def own_values(table: Path, **sections: object) -> dict[str, Any]:
    """Values of a config for a table of small images, with some sections replaced."""
    values: dict[str, Any] = {
        "data": {"kind": "table", "csv": str(table)},
        "patches": {"size": 16},
        "encoder": {"name": "thin-resnet", "stages": 1, "width": 8},
        "select": {"keep": 3, "chunk": 4, "load": "lazy"},
        "aggregate": {"heads": 2},
        "train": {"epochs": 1, "batch": 2, "warmup": 0},
        "tasks": {"grade": {"kind": "multiclass", "classes": 2}},
    }
    return values | sections


def own(table: Path, **sections: object) -> Config:
    """A config of these values."""
    return parse_config(own_values(table, **sections), source="test")
