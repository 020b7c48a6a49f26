"""Does a device select, remember and learn as the CPU does? A check for a machine with a GPU.

Letters: B images, N patches of an image, M kept.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.bench.timing import Clock, Log, ignore
from ips.errors import ConfigError
from ips.models import IPSNet
from ips.nn import CrossAttentionTransformer, Head, resnet18
from ips.patches import MemoryPatches, PatchSource

_B, _N, _M, _SIDE = 4, 256, 16, 64
_TASK, _CLASSES = "class", 4
# Sums in another order differ by about 1e-6 of their size; a wrong kernel by far more.
_TOLERANCE = 1e-3
_SAME = 0.9  # share of the patches; equal scores may be ranked differently


@dataclass(frozen=True)
class DeviceCheck:
    """A device compared with the CPU, with the same weights and images.

    Attributes:
        device: name of the device.
        same: share of the M patches of each image that both select.
        loss, gradient: relative differences of a training step.
        speed: how many times faster the device makes such a step with its selection.
        growth: peak memory with four times the patches as a factor of that with N; None where the
            memory of a device is unknown.
    """

    device: str
    same: float
    loss: float
    gradient: float
    speed: float
    growth: float | None

    @property
    def agrees(self) -> bool:
        """Whether the device computes what the CPU computes."""
        return self.same >= _SAME and max(self.loss, self.gradient) <= _TOLERANCE


def check_device(name: str, *, log: Log = ignore) -> DeviceCheck:
    """Compare a device with the CPU: selection, a training step, and memory.

    Args:
        name: name of the device as torch has it, such as ``cuda``, ``cuda:1`` or ``mps``.
        log: receives a line about each step.
    """
    device = _find(name)
    torch.manual_seed(0)
    net = IPSNet(
        resnet18(stages=2, channels=3),
        CrossAttentionTransformer(128, tokens=1, dropout=0, attention_dropout=0),
        {_TASK: Head(128, _CLASSES, activation="softmax")},
        keep=_M,
        chunk=_M,
    )
    there = copy.deepcopy(net).to(device)
    images = _images(_N)
    with torch.backends.cudnn.flags(allow_tf32=False):  # else convolutions have three digits
        log("a step on the CPU")
        ours = _step(net, images)
        log(f"a step on {device}")
        theirs = _step(there, images)
        seconds = {arm: _seconds(arm, images) for arm in (net, there)}
    pairs = zip(ours.kept.tolist(), theirs.kept.tolist(), strict=True)
    same = [len(set(a) & set(b)) / _M for a, b in pairs]
    return DeviceCheck(
        device=_full_name(device),
        same=sum(same) / _B,
        loss=abs(ours.loss / theirs.loss - 1),
        gradient=float((ours.gradient - theirs.gradient).norm() / ours.gradient.norm()),
        speed=seconds[net] / seconds[there],
        growth=_growth(there, device),
    )


def _find(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"--device {name}: no such device: give cuda, cuda:1, mps or cpu"
        ) from error
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        reason = re.split(r"\. |\n", str(error), maxsplit=1)[0]  # torch lists all that it knows
        raise ConfigError(
            f"--device {name}: it cannot be used ({reason}): `ips doctor` lists the devices"
        ) from error
    return device


def _full_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return str(device)


def _images(patches: int) -> list[PatchSource]:
    random = torch.Generator().manual_seed(1)
    shape = (patches, 3, _SIDE, _SIDE)
    return [
        MemoryPatches(torch.randint(0, 256, shape, dtype=torch.uint8, generator=random))
        for _ in range(_B)
    ]


@dataclass(frozen=True)
class _Step:
    """Patches kept ``(B, M)``, loss, and gradient of all weights."""

    kept: Tensor
    loss: float
    gradient: Tensor


def _step(net: IPSNet, images: Sequence[PatchSource]) -> _Step:
    """Algorithm 1 for one batch, without an update of the weights."""
    chosen = net.select(images, load="lazy")
    output = net(chosen.patches, chosen.selection)
    labels = torch.arange(_B, device=net.device) % _CLASSES
    loss = F.cross_entropy(output.logits[_TASK], labels)
    net.zero_grad()
    loss.backward()
    parts = [weight.grad.flatten() for weight in net.parameters() if weight.grad is not None]
    return _Step(chosen.selection.indices.cpu(), loss.item(), torch.cat(parts).cpu())


def _seconds(net: IPSNet, images: Sequence[PatchSource]) -> float:
    clock = Clock(net.device)
    _step(net, images)
    return clock.lap()


def _growth(net: IPSNet, device: torch.device) -> float | None:
    """Peak memory with four times the patches, relative to N."""
    if device.type != "cuda":
        return None
    peaks = []
    for patches in (_N, 4 * _N):
        torch.cuda.reset_peak_memory_stats(device)
        _step(net, _images(patches))
        peaks.append(torch.cuda.max_memory_allocated(device))
    return peaks[1] / peaks[0]
