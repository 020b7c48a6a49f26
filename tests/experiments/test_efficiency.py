"""Time and memory of a training step, measured without a training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ips.bench.timing import Clock
from ips.data.synthetic.scene import ScenePatches
from ips.errors import ConfigError
from ips.experiments import EXPERIMENTS, Plan, efficiency
from ips.experiments.efficiency import Cost, measure_here, without_downloads
from ips.patches import MemoryPatches, PatchSubset
from ips.recipes import read_recipe
from ips.training import build_data
from tests.experiments.small import TINY, plan


def test_costs_are_measured_without_training() -> None:
    arm = plan(Path("x")).arms()[1]
    cost = measure_here(plan(Path("x")).config(arm, 0).model_dump(mode="json"), 3)
    assert cost.memory_gb > 0.05
    assert cost.rest_ms > 0
    assert cost.select_ms is not None
    assert cost.select_ms > 0


@pytest.mark.parametrize(
    ("method", "load"),
    [("ips", "eager"), ("ips", "sequential"), ("ips", "lazy"), ("cnn", "lazy"), ("dps", "eager")],
)
def test_images_are_in_memory_before_the_clock_starts(
    method: str, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Ticking(Clock):
        def __init__(self, device: torch.device) -> None:
            events.append("start")
            super().__init__(device)

        def lap(self) -> float:
            events.append("lap")
            return super().lap()

    def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            events.append("read")
            return function(*args, **options)

        return call

    monkeypatch.setattr(efficiency, "Clock", Ticking)
    monkeypatch.setattr(ScenePatches, "read", recorded(ScenePatches.read))
    if method != "ips":  # these assemble images, and read nothing afterwards
        monkeypatch.setattr(MemoryPatches, "read", recorded(MemoryPatches.read))
    settings = [*TINY, f"method={method}", f"select.load={load}", "select.keep=2"]
    values = read_recipe("megapixel-mnist", scale="laptop", settings=settings)
    cost = measure_here(values, 3)
    laps = 1 + int(method == "ips")  # selection, everything else
    assert (cost.select_ms is not None) == (laps == 2)
    before, *steps = " ".join(events).split("start")
    assert before.split() == ["read"] * 2 if load == "eager" else not before.strip()
    in_memory = steps[3:]  # after three steps that measure memory
    assert len(in_memory) == 3
    for step in in_memory:
        assert step.split()[:laps] == ["lap"] * laps


def test_equal_images_share_their_memory() -> None:
    one, same, other = (MemoryPatches(torch.full((3, 4), v), name=f"{v}") for v in (1, 1, 2))
    loaded = efficiency._load([PatchSubset(s, np.arange(2)) for s in (one, same, other, one)])
    assert [image.name for image in loaded] == ["1", "1", "2", "1"]
    places = [image.patches.data_ptr() for image in loaded]
    assert places[0] == places[1]
    assert len(set(places)) == 3  # an image is only compared with the one before


def test_a_whole_epoch_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def run(config: object, data: object, net: object, count: int, *, loaded: bool) -> object:
        steps.append(count)
        return [(0.5, second) for second in (9.0, 1.0, 2.0, 9.0)]

    monkeypatch.setattr(efficiency, "_run_steps", run)
    arm = plan(Path("x")).arms()[1]

    def measure(*settings: str) -> Cost:
        config = plan(Path("x"), settings=settings).config(arm, 0)
        return measure_here(config.model_dump(mode="json"), "epoch")

    cost = measure("data.train=10")  # in batches of 2
    assert steps == [5, 5]
    assert (cost.select_ms, cost.rest_ms) == (500, 1500)  # the first and last are left out
    with pytest.raises(ConfigError, match="an epoch of 4 images has fewer than 3 steps of 2"):
        measure("data.train=4")


def test_costs_of_photographs_are_measured_without_them() -> None:
    whole = Plan(EXPERIMENTS["traffic-signs"], "paper", seeds=1, folder=Path("x"))
    config = without_downloads(whole.config(whole.arms()[0], 0))
    assert config.encoder.weights == Path("none")
    source, labels = build_data(config).train[0]
    assert (len(source), source.shape, set(labels)) == (192, (3, 100, 100), {"sign"})


def test_costs_of_digits_are_measured_without_all_of_mnist(tmp_path: Path) -> None:
    whole = Plan(EXPERIMENTS["megapixel-mnist"], "paper", seeds=1, folder=Path("x"))
    config = whole.config(whole.arms()[0], 0)
    for folder, used in ((tmp_path / "gone", None), (tmp_path, tmp_path)):
        data = config.data.model_copy(update={"digits": folder})
        stand_in = without_downloads(config.model_copy(update={"data": data})).data
        assert stand_in == data.model_copy(update={"digits": used})
