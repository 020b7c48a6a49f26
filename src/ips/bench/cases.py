"""Models and images to measure: the paper's experiments, or tiny versions of them.

Letters: B images, N patches of an image, M kept, I per step, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.data.synthetic.megapixel_mnist import TASKS, MegapixelMNIST
from ips.models import IPSNet, Load
from ips.nn import CrossAttentionTransformer, FeatureProjector, Head, resnet18
from ips.patches import MemoryPatches, PatchSource


@dataclass(frozen=True)
class Case:
    """A model and a batch for it.

    Attributes:
        name: name of the case on the command line.
        description: facts about images and encoder for the report.
        net: the model.
        sources: B images.
        labels: per task ``(B,)`` classes or ``(B, C)`` zeros and ones.
    """

    name: str
    description: dict[str, Any]
    net: IPSNet
    sources: Sequence[PatchSource]
    labels: dict[str, Tensor]

    @property
    def settings(self) -> dict[str, Any]:
        """The description and the sizes N, M, I and B."""
        sizes = {"N": len(self.sources[0]), "M": self.net.keep, "I": self.net.chunk}
        return self.description | sizes | {"batch": len(self.sources)}


def megapixel_mnist_case(*, batch: int, device: torch.device, quick: bool = False) -> Case:
    """Sect. 4.3: 1,500 px, N = 900, M = 100, I = 100, the first two stages of a ResNet-18."""
    side, keep, chunk, width = (400, 6, 8, 16) if quick else (1500, 100, 100, 64)
    data = MegapixelMNIST(side, count=batch)
    items = [data[i] for i in range(batch)]
    sources = [MemoryPatches(s.read(range(len(s))).to(device), name=s.name) for s, _ in items]
    labels = {task: torch.stack([label[task] for _, label in items]) for task in TASKS}
    net = mnist_net(keep=keep, chunk=chunk, width=width).to(device)
    net = briefly_trained(net, sources, labels, steps=4)
    description = {"side": side, "patch": 50, "encoder": "resnet18", "stages": 2, "width": width}
    return Case("megapixel-mnist", description, net, sources, labels)


def dense_case(*, batch: int, device: torch.device, quick: bool = False) -> Case:
    """Images of 1,200 x 1,600 px without equal patches, N = 192, M = 10, I = 32, a ResNet-18."""
    patch, keep, chunk, width = (32, 6, 8, 16) if quick else (100, 10, 32, 64)
    images = multiscale_noise(batch, height=12 * patch, width=16 * patch)  # (B, 3, h, w)
    cut = images.unfold(2, patch, patch).unfold(3, patch, patch)  # (B, 3, 12, 16, p, p)
    cut = cut.permute(0, 2, 3, 1, 4, 5).flatten(1, 2).to(device)  # (B, N, 3, p, p)
    sources = [
        MemoryPatches(patches, name=f"dense/{i}") for i, patches in enumerate(cut.contiguous())
    ]
    labels = {"class": torch.arange(batch) % 4}
    torch.manual_seed(0)
    net = _net(resnet18(width=width), 8 * width, {"class": 4}, keep=keep, chunk=chunk).to(device)
    net = briefly_trained(net, sources, labels, steps=4)
    description: dict[str, Any] = {"height": 12 * patch, "width_px": 16 * patch, "patch": patch}
    description |= {"encoder": "resnet18", "stages": 4, "width": width}
    return Case("dense", description, net, sources, labels)


def mnist_net(*, keep: int, chunk: int, width: int) -> IPSNet:
    """The model of Sect. 4.3, initialised with seed 0; ``width`` is 64 in the paper."""
    torch.manual_seed(0)
    encoder = resnet18(stages=2, width=width, channels=1)
    classes = {task: count for task, (_, count) in TASKS.items()}
    return _net(encoder, 2 * width, classes, keep=keep, chunk=chunk, position=True)


def projector_net(*, inputs: int, dim: int, keep: int, chunk: int) -> IPSNet:
    """The model of Sect. 4.2 for stored features, initialised with seed 0."""
    torch.manual_seed(0)
    return _net(FeatureProjector(inputs, dim=dim), dim, {"tumour": 2}, keep=keep, chunk=chunk)


def briefly_trained(
    net: IPSNet, sources: Sequence[PatchSource], labels: Mapping[str, Tensor], *, steps: int
) -> IPSNet:
    """Train ``net`` for a few steps, so that its scores vary like those of a real model."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    for step in range(steps):
        train_step(net, optimizer, sources, labels, seed=step)
    return net.eval()


def train_step(
    net: IPSNet,
    optimizer: torch.optim.Optimizer,
    sources: Sequence[PatchSource],
    labels: Mapping[str, Tensor],
    *,
    seed: int,
    load: Load = "eager",
) -> Tensor:
    """Select, embed, aggregate, update the weights (Algorithm 1); returns the selected indices."""
    net.train()
    torch.manual_seed(seed)  # for dropout
    selected = net.select(sources, load=load, seed=seed)
    update_weights(optimizer, net(selected.patches, selected.selection).logits, labels)
    return selected.selection.indices


def update_weights(
    optimizer: torch.optim.Optimizer, logits: Mapping[str, Tensor], labels: Mapping[str, Tensor]
) -> None:
    """Backpropagate the mean loss of the tasks and take a step of the optimizer."""
    losses = [
        F.cross_entropy(logits[task], y.to(logits[task].device))
        if y.dim() == 1
        else F.binary_cross_entropy_with_logits(logits[task], y.to(logits[task].device))
        for task, y in labels.items()
    ]
    optimizer.zero_grad()
    torch.stack(losses).mean().backward()
    optimizer.step()


def _net(
    encoder: nn.Module,
    dim: int,
    classes: Mapping[str, int],
    *,
    keep: int,
    chunk: int,
    position: bool = False,
) -> IPSNet:
    aggregator = CrossAttentionTransformer(dim, tokens=len(classes))
    heads = {task: Head(dim, n, activation=torch.sigmoid) for task, n in classes.items()}
    return IPSNet(encoder, aggregator, heads, keep=keep, chunk=chunk, position=position)


def multiscale_noise(count: int, *, height: int, width: int) -> Tensor:
    """Colour noise with detail at every scale, like a photograph: ``(count, 3, h, w)`` uint8."""
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(count, 3, height, width)
    for scale in (4, 16, 64, 256):
        size = min(scale, height), min(scale, width)
        noise = torch.rand(count, 3, *size, generator=generator)
        total += F.interpolate(noise, (height, width), mode="bilinear", align_corners=False)
    total += 0.3 * torch.rand(count, 3, height, width, generator=generator)
    return (total * (255 / 4.3)).to(torch.uint8)
