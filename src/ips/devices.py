"""The device that networks run on: an NVIDIA GPU, the GPU of an Apple processor, or the CPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, get_args

from ips.errors import ConfigError

if TYPE_CHECKING:  # commands name a device before they need torch, which takes seconds to import
    import torch

DeviceName = Literal["auto", "cpu", "cuda", "mps"]
VARIABLE = "IPS_DEVICE"
"""Environment variable with the name of the device, which processes inherit."""


def use(name: str) -> None:
    """Choose the device of this process and of all processes that it starts.

    Args:
        name: ``cpu``, ``cuda``, ``mps``, or ``auto`` for the fastest that there is.
    """
    if name not in ("auto", "cpu"):
        pick_device(name)
    os.environ[VARIABLE] = name


def pick_device(device: torch.device | str | None = None) -> torch.device:
    """The given device; by default that of `use`, or the fastest.

    Of several NVIDIA GPUs, it is the one that torchrun assigns to this process.
    """
    import torch

    if isinstance(device, torch.device):
        return device
    name = device or os.environ.get(VARIABLE) or "auto"
    if name not in get_args(DeviceName):
        raise ConfigError(f"device {name}: expected one of {', '.join(get_args(DeviceName))}")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if (name == "cuda" and not cuda) or (name == "mps" and not mps):
        raise ConfigError(f"device {name}: torch finds no such GPU, use auto (see `ips doctor`)")
    if name == "auto":
        name = "cuda" if cuda else "mps" if mps else "cpu"
    if name != "cuda":
        return torch.device(name)
    # A process may see only one of several GPUs, and there may be more processes than GPUs.
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    return torch.device("cuda", rank % torch.cuda.device_count())


def double_device(device: torch.device) -> torch.device:
    """The device, or the CPU if the device has no double precision, as Apple's GPUs."""
    import torch

    return torch.device("cpu") if device.type == "mps" else device


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has done all that it was asked to do."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
