"""One training step on image files, run in a new process to measure its memory.

Letters: B images.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from ips.bench.cases import mnist_net, train_step, update_weights
from ips.bench.peak import Peak, peak_memory
from ips.data.synthetic.megapixel_mnist import TASKS
from ips.errors import ConfigError
from ips.images import open_image
from ips.models import LOADS
from ips.nn import resnet18
from ips.patches import open_patches


def measure_step(arm: str, paths: list[Path], keep: int, width: int) -> Peak:
    """Memory of one step, from opening the B files to updating the weights.

    Args:
        arm: how IPS loads its patches, or ``cnn``.
        paths: image files.
        keep: M, and I.
        width: channels of the encoder's first stage.
    """
    labels = _labels(len(paths))
    if arm == "cnn":
        return _measure_cnn(paths, labels, width)
    load = next((load for load in LOADS if load == arm), None)
    if load is None:
        raise ConfigError(f"there is no arm {arm}: use {', '.join(LOADS)} or cnn")
    net = mnist_net(keep=keep, chunk=keep, width=width)
    optimizer = torch.optim.AdamW(net.parameters())

    def ips_step() -> None:
        sources = [open_patches(path, patch_size=50) for path in paths]
        train_step(net, optimizer, sources, labels, seed=0, load=load)

    return peak_memory(ips_step)


def _measure_cnn(paths: list[Path], labels: dict[str, Tensor], width: int) -> Peak:
    """The encoder on whole images with a linear head for all tasks (the baseline of Sect. 4)."""
    sizes = [classes for _, classes in TASKS.values()]
    encoder = resnet18(stages=2, width=width, channels=1)
    cnn = nn.Sequential(encoder, nn.Linear(2 * width, sum(sizes)))
    optimizer = torch.optim.AdamW(cnn.parameters())

    def step() -> None:
        logits = cnn(_read_images(paths)).split(sizes, dim=1)
        update_weights(optimizer, dict(zip(TASKS, logits, strict=True)), labels)

    return peak_memory(step)


def _read_images(paths: list[Path]) -> Tensor:
    """Images of the same size as ``(B, 1, h, w)`` floats."""
    files = [open_image(path) for path in paths]
    width, height = files[0].dimensions
    images = torch.empty(len(files), 1, height, width)
    for image, file in zip(images, files, strict=True):
        pixels = file.read_region((0, 0), 0, (width, height))  # (h, w, 1)
        image.copy_(torch.from_numpy(pixels).squeeze(-1)).div_(255)
        file.close()
    return images


def _labels(count: int) -> dict[str, Tensor]:
    """Arbitrary labels: the memory of a step does not depend on them."""
    return {
        task: torch.zeros(count, classes) if kind == "multilabel" else torch.zeros(count).long()
        for task, (kind, classes) in TASKS.items()
    }
