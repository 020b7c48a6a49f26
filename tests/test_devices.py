from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ips import devices
from ips.devices import double_device, pick_device
from ips.errors import ConfigError
from ips.models.screen import Screen
from ips.nn.attention import sinusoidal_position
from ips.tasks import Regression
from ips.training.processes import Processes
from ips.training.tally import Tally
from tests.command import refused

Gpus = Callable[..., None]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """A function that pretends that there are GPUs."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.delenv(devices.VARIABLE, raising=False)

    def pretend(*, cuda: int = 0, mps: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: cuda)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)

    return pretend


def test_the_fastest_device_is_chosen(gpus: Gpus) -> None:
    gpus(cuda=1, mps=True)
    assert pick_device() == torch.device("cuda:0")
    gpus(mps=True)
    assert pick_device() == torch.device("mps")
    gpus()
    assert pick_device() == torch.device("cpu")


def test_a_choice_is_for_all_that_follows(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(devices.VARIABLE, "auto")
    gpus(cuda=1, mps=True)
    for name in ("cpu", "mps", "cuda"):
        devices.use(name)
        assert pick_device().type == name
    devices.use("cpu")
    assert pick_device("mps").type == "mps"  # but an argument goes first
    assert pick_device(torch.device("cuda:1")) == torch.device("cuda:1")
    devices.use("auto")
    assert pick_device().type == "cuda"


def test_processes_take_turns_with_the_gpus(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(cuda=2)
    for rank, device in (("1", "cuda:1"), ("3", "cuda:1"), ("2", "cuda:0")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert pick_device() == torch.device(device)


def test_mistakes(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gpus()
    for name, said in {"tpu": "expected one of auto, cpu", "mps": "no such GPU"}.items():
        with pytest.raises(ConfigError, match=said):
            pick_device(name)
    monkeypatch.setenv(devices.VARIABLE, "auto")
    words = refused("predict", tmp_path, tmp_path, "--device", "cuda")
    assert "device cuda: torch finds no such GPU" in words
    gpus(mps=True)
    with pytest.raises(ConfigError, match=r"train.devices=2 but Apple's GPU trains alone"):
        Processes(2).check(devices="train.devices")


class AppleGPU(TorchDispatchMode):
    """Stands in for Apple's GPU: refuses double precision, and computes nothing."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        device = torch.device(kwargs.get("device") or "cpu")
        if func is torch.ops.aten._to_copy.default and device.type == "mps":
            dtype = kwargs.get("dtype") or args[0].dtype
            found = torch.empty(args[0].shape, dtype=dtype, device="mps")
        else:
            found = func(*args, **kwargs)
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor) and leaf.device.type == "mps":
                assert leaf.dtype != torch.float64, f"{func} in double precision"
        return found


@pytest.fixture
def apple() -> Iterator[None]:
    with FakeTensorMode(), AppleGPU():  # type: ignore[no-untyped-call]
        yield


@pytest.mark.usefixtures("apple")
def test_the_stand_in_refuses_double_precision() -> None:
    with pytest.raises(AssertionError, match="double precision"):
        torch.zeros(3, device="mps").double()


@pytest.mark.usefixtures("apple")
def test_positions_on_apples_gpu() -> None:
    position = sinusoidal_position(torch.zeros(3, dtype=torch.int64, device="mps"), 8)
    assert position.device.type == "mps"
    assert double_device(position.device) == torch.device("cpu")


def test_a_screen_has_no_numbers_in_double_precision() -> None:
    screen = Screen(3, 4)
    assert {value.dtype for value in screen.state_dict().values()} == {torch.float32}


def test_metrics_in_double_precision_stay_on_the_cpu() -> None:
    tally = Tally({"dose": Regression()}, torch.device("mps"))
    tally.add({"dose": torch.tensor([[0.5], [1.0]])}, {"dose": torch.tensor([0.5, 1.0])})
    assert tally.scores() == {"dose": 1.0}
