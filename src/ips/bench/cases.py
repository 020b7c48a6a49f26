"""Models and images to measure: the paper's experiments, or tiny versions of them.

Letters: B images, N patches of an image, M kept, I per step, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.data.synthetic.megapixel_mnist import TASKS, MegapixelMNIST
from ips.models import IPSNet, Load
from ips.nn import CrossAttentionTransformer, FeatureProjector, Head, resnet18
from ips.patches import MemoryPatches, PatchSource

#: From a random seed to the selected indices ``(B, M)`` and the logits ``(B, C)`` per task.
Forward = Callable[[int], tuple[Tensor, Mapping[str, Tensor]]]


@dataclass(frozen=True)
class Case:
    """A briefly trained model and a batch for it.

    Attributes:
        name: name of the case on the command line.
        settings: facts about images and encoder for the report, and the sizes N, M, I and B.
        net: the model.
        sources: B images.
        labels: per task ``(B,)`` classes or ``(B, C)`` zeros and ones.
        load: how the select step loads the patches.
    """

    name: str
    settings: dict[str, Any]
    net: IPSNet
    sources: Sequence[PatchSource]
    labels: dict[str, Tensor]
    load: Load = "eager"


def megapixel_mnist_case(*, batch: int, device: torch.device, quick: bool = False) -> Case:
    """Sect. 4.3: 1,500 px, N = 900, M = 100, I = 100, the first two stages of a ResNet-18."""
    side, keep, chunk, width = (400, 6, 8, 16) if quick else (1500, 100, 100, 64)
    data = MegapixelMNIST(side, count=batch)
    images, all_labels = zip(*(data[i] for i in range(batch)), strict=True)
    patches = [image.read(range(len(image))) for image in images]  # B x (N, 1, p, p)
    labels = {task: torch.stack([label[task] for label in all_labels]) for task in TASKS}
    net = mnist_net(keep=keep, chunk=chunk, width=width)
    facts = {"side": side, "patch": 50, "encoder": "resnet18", "stages": 2, "width": width}
    return _case("megapixel-mnist", facts, net.to(device), patches, labels)


def dense_case(*, batch: int, device: torch.device, quick: bool = False) -> Case:
    """Images of 1,200 x 1,600 px without equal patches, N = 192, M = 10, I = 32, a ResNet-18."""
    patch, keep, chunk, width = (32, 6, 8, 16) if quick else (100, 10, 32, 64)
    images = multiscale_noise(batch, height=12 * patch, width=16 * patch)  # (B, 3, h, w)
    cut = images.unfold(2, patch, patch).unfold(3, patch, patch)  # (B, 3, 12, 16, p, p)
    patches = cut.permute(0, 2, 3, 1, 4, 5).flatten(1, 2).contiguous()  # (B, N, 3, p, p)
    torch.manual_seed(0)
    net = _net(resnet18(width=width), 8 * width, {"class": 4}, keep=keep, chunk=chunk)
    facts: dict[str, Any] = {"height": 12 * patch, "width_px": 16 * patch, "patch": patch}
    facts |= {"encoder": "resnet18", "stages": 4, "width": width}
    return _case("dense", facts, net.to(device), patches, {"class": torch.arange(batch) % 4})


def _case(
    name: str,
    facts: Mapping[str, Any],
    net: IPSNet,
    patches: Iterable[Tensor],
    labels: dict[str, Tensor],
) -> Case:
    device = net.normalise.mean.device
    sources = [MemoryPatches(p.to(device), name=f"{name}/{i}") for i, p in enumerate(patches)]
    sizes = {"N": len(sources[0]), "M": net.keep, "I": net.chunk, "batch": len(sources)}
    net = briefly_trained(net, sources, labels)
    return Case(name, {**facts, **sizes}, net, sources, labels)


def mnist_net(*, keep: int, chunk: int, width: int) -> IPSNet:
    """The model of Sect. 4.3, initialised with seed 0; ``width`` is 64 in the paper."""
    torch.manual_seed(0)
    encoder = resnet18(stages=2, width=width, channels=1)
    classes = {task: n for task, (_, n) in TASKS.items()}
    return _net(encoder, 2 * width, classes, keep=keep, chunk=chunk, position=True)


def projector_net(*, inputs: int, dim: int, keep: int, chunk: int) -> IPSNet:
    """The model of Sect. 4.2 for stored features, initialised with seed 0."""
    torch.manual_seed(0)
    return _net(FeatureProjector(inputs, dim=dim), dim, {"tumour": 2}, keep=keep, chunk=chunk)


def briefly_trained(
    net: IPSNet, sources: Sequence[PatchSource], labels: Mapping[str, Tensor], *, steps: int = 4
) -> IPSNet:
    """Train ``net`` for a few steps, so that its scores vary like those of a real model."""
    step = training_step(net, ips_forward(net, sources), labels)
    for _ in range(steps):
        step()
    return net.eval()


def training_step(
    net: nn.Module, forward: Forward, labels: Mapping[str, Tensor]
) -> Callable[[], Tensor]:
    """A function that trains ``net`` for one step and returns the selected indices.

    Its calls use the seeds 0, 1, 2 and so on. The loss is the mean over the tasks.
    """
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.1)
    seeds = count()

    def step() -> Tensor:
        seed = next(seeds)
        net.train()
        torch.manual_seed(seed)  # for dropout
        indices, logits = forward(seed)
        losses = []
        for task, y in labels.items():
            loss = F.cross_entropy if y.dim() == 1 else F.binary_cross_entropy_with_logits
            losses.append(loss(logits[task], y.to(logits[task].device)))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
        return indices

    return step


def ips_forward(net: IPSNet, sources: Sequence[PatchSource], *, load: Load = "eager") -> Forward:
    """Select, embed and aggregate (Algorithm 1)."""

    def forward(seed: int) -> tuple[Tensor, Mapping[str, Tensor]]:
        selected = net.select(sources, load=load, seed=seed)
        return selected.selection.indices, net(selected.patches, selected.selection).logits

    return forward


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
