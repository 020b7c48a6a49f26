"""A config that trains in a second, for tests of everything round the training."""

from __future__ import annotations

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
