"""One training step on image files, run in a new process to measure its memory.

Letters: B images.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from ips.bench.cases import ips_forward, mnist_net, training_step
from ips.bench.peak import Peak, peak_memory
from ips.data.synthetic.megapixel_mnist import TASKS
from ips.images import open_image
from ips.models import Load
from ips.nn import resnet18
from ips.patches import open_patches


def measure_step(arm: str, paths: list[Path], keep: int, width: int) -> Peak:
    """Memory of one step, from opening the B files to updating the weights.

    Args:
        arm: how IPS loads its patches, or ``cnn``: the encoder on whole images with a linear head
            for all tasks (the baseline of Sect. 4).
        paths: image files of the same size.
        keep: M, and I.
        width: channels of the encoder's first stage.
    """
    # Arbitrary labels: the memory of a step does not depend on them.
    labels = {
        task: torch.zeros(len(paths), n) if kind == "multilabel" else torch.zeros(len(paths)).long()
        for task, (kind, n) in TASKS.items()
    }
    if arm == "cnn":
        sizes = [classes for _, classes in TASKS.values()]
        encoder = resnet18(stages=2, width=width, channels=1)
        cnn = nn.Sequential(encoder, nn.Linear(2 * width, sum(sizes)))

        def forward(_: int) -> tuple[Tensor, Mapping[str, Tensor]]:
            logits = cnn(_read_images(paths))  # (B, classes of all tasks)
            return torch.empty(0), dict(zip(TASKS, logits.split(sizes, dim=1), strict=True))

        return peak_memory(training_step(cnn, forward, labels))
    net = mnist_net(keep=keep, chunk=keep, width=width)

    def ips(seed: int) -> tuple[Tensor, Mapping[str, Tensor]]:
        sources = [open_patches(path, patch_size=50) for path in paths]
        return ips_forward(net, sources, load=cast(Load, arm))(seed)

    return peak_memory(training_step(net, ips, labels))


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
