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


def test_the_report_says_how_many_patches_were_scored() -> None:
    log = {
        "epoch": np.arange(1.0, 5.0),
        "seconds": np.ones(4),
        "scored": np.array([1, 0.2, 0.3, 1.0]),
        "recall": np.array([np.nan, 0.6, 0.7, 0.8]),
        "recall_low": np.array([np.nan, 0.5, 0.65, 0.7]),
        "recall_high": np.array([np.nan, 0.7, 0.75, 0.9]),
        "recall_attention": np.array([np.nan, 0.9, 0.97, 0.99]),
        "recall_attention_low": np.array([np.nan, 0.8, 0.95, 0.98]),
        "recall_attention_high": np.array([np.nan, 0.95, 0.98, 1.0]),
    }
    assert costs(log, images=1)["scored patches"] == (
        "25% in 2 of 4 epochs, all in the others; recall 0.97 (0.95 to 0.98) of the attention to "
        "the selected patches, 0.70 (0.65 to 0.75) of the patches, in epoch 3"
    )
    log["scored"][:] = 1
    assert costs(log, images=1)["scored patches"] == "all in every epoch"
    assert "scored patches" not in costs({"seconds": np.ones(1)}, images=1)
