"""One training step on image files, as a fresh process runs it to see how much memory it takes.

Letters: B images, C channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ips.bench.cases import loss_of, mnist_net, train_step
from ips.bench.peak import Peak, peak_of
from ips.data import TASKS
from ips.errors import ConfigError
from ips.images import open_image
from ips.models import LOADS, IPSNet
from ips.nn import resnet18
from ips.patches import open_patches


@dataclass(frozen=True)
class Step:
    """What to run.

    Attributes:
        arm: a way to load, or ``cnn``.
        paths: of the B images.
        keep: M, and I.
        width: of the encoder.
    """

    arm: str
    paths: list[Path]
    keep: int
    width: int


class CNN(nn.Module):
    """The encoder over the whole image, a linear head per task (the baseline of Sect. 4)."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.encoder = resnet18(stages=2, width=width, channels=1)
        self.heads = nn.ModuleDict({t: nn.Linear(2 * width, n) for t, (_, n) in TASKS.items()})

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """``(B, 1, h, w)`` to logits ``(B, C)`` per task."""
        x = self.encoder(images)
        return {task: head(x) for task, head in self.heads.items()}


def peak_of_step(step: Step) -> Peak:
    """Memory of one step, from opening the files to the update of the weights."""
    labels = _labels(len(step.paths))
    if step.arm == "cnn":
        cnn = CNN(width=step.width)
        optimizer = torch.optim.AdamW(cnn.parameters())
        return peak_of(lambda: _cnn_step(cnn, optimizer, step.paths, labels))
    if step.arm not in LOADS:
        raise ConfigError(f"there is no arm {step.arm}: take {', '.join(LOADS)} or cnn")
    net = mnist_net(keep=step.keep, chunk=step.keep, width=step.width)
    optimizer = torch.optim.AdamW(net.parameters())
    return peak_of(lambda: _ips_step(net, optimizer, step, labels))


def _ips_step(
    net: IPSNet, optimizer: torch.optim.Optimizer, step: Step, labels: dict[str, Tensor]
) -> None:
    sources = [open_patches(path, patch_size=50) for path in step.paths]
    load = next(load for load in LOADS if load == step.arm)
    train_step(net, optimizer, sources, labels, seed=0, load=load)


def _cnn_step(
    cnn: CNN, optimizer: torch.optim.Optimizer, paths: list[Path], labels: dict[str, Tensor]
) -> None:
    files = [open_image(path) for path in paths]
    width, height = files[0].dimensions
    images = torch.empty(len(files), 1, height, width)
    for image, file in zip(images, files, strict=True):
        pixels = file.read_region((0, 0), 0, (width, height))  # (h, w, 1)
        image.copy_(torch.from_numpy(pixels).squeeze(-1)).div_(255)
        file.close()
    loss = loss_of(cnn(images), labels)
    loss.backward()
    optimizer.step()


def _labels(count: int) -> dict[str, Tensor]:
    """Any will do: what a step takes does not depend on them."""
    return {
        task: torch.zeros(count, classes) if kind == "multilabel" else torch.zeros(count).long()
        for task, (kind, classes) in TASKS.items()
    }
