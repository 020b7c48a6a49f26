"""The facts of a run in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ips.config_io import parse_config
from ips.report.facts import costs, setup


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        ({"name": "resnet18"}, "resnet18, 4 stages, width 64, from scratch"),
        (
            {"name": "resnet18", "weights": "runs/a/encoder.pth"},
            "resnet18, 4 stages, width 64, starting from encoder.pth",
        ),
        (
            {"name": "efficientnet-lite0", "weights": "imagenet"},
            "efficientnet-lite0, 4 stages, starting from imagenet",
        ),
        ({"name": "projector", "dim": 8}, "projector to 8 values"),
        ({"name": "timm:resnet10t"}, "timm:resnet10t, pretrained"),
        ({"name": "timm:resnet10t", "weights": "none"}, "timm:resnet10t, from scratch"),
    ],
)
def test_encoders_are_described_with_their_weights(encoder: dict[str, Any], expected: str) -> None:
    tasks = {"grade": {"kind": "binary"}}
    values = {"tasks": tasks, "encoder": {"stages": 4} | encoder, "train": {"lr": 0.001}}
    config = parse_config(values, source="test")
    facts = setup(config, model={"aggregation": "none"}, parameters=1234, train=5, test=6)
    assert facts["encoder"] == expected
    assert facts["aggregation"] == "none"
    assert facts["parameters"] == "1,234"


def test_costs_ignore_missing_values() -> None:
    assert costs({}, images=10) == {}
    assert costs({"seconds": np.array([np.nan])}, images=10) == {}
    log = {"seconds": np.array([2.0, np.nan, 4.0]), "peak_mb": np.array([np.nan, 7, 9.0])}
    assert costs(log, images=30) == {
        "training": "6.0 s for 3 epochs",
        "one epoch": "3.0 s (median), 10.0 images per second",
        "peak memory": "9 MB of the GPU, or of the process if there was no GPU",
    }
