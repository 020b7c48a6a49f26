from __future__ import annotations

from ips.training import build_data
from ips.training.model import resolve
from ips.tuning.space import as_settings, own_values, usual_ranges
from tests.training.tiny import tiny


def test_usual_ranges_are_around_the_config() -> None:
    config = tiny("train.lr=0.01", "patches.stride=25")
    config = resolve(config, build_data(config))
    ranges = {one.key: one.ends for one in usual_ranges(config)}
    assert ranges == {
        "train.lr": ("0.002", "0.05"),
        "select.keep": ("2", "4", "8"),
        "patches.size": ("25", "50", "100"),
        "encoder.name": ("thin-resnet", "resnet18"),
    }
    assert own_values(config, usual_ranges(config)) == {
        "train.lr": 0.01,
        "select.keep": "4",
        "patches.size": "50",
        "encoder.name": "thin-resnet",
    }
    assert as_settings({"patches.size": "100"}, config)["patches.stride"] == "50"


def test_a_network_on_whole_images_keeps_no_patches() -> None:
    config = tiny("method=cnn", "train.lr=0.01", "readout=null", "aggregate.position=false")
    keys = {one.key for one in usual_ranges(resolve(config, build_data(config)))}
    assert "select.keep" not in keys
