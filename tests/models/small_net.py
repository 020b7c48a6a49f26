"""A small model and patch sources for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.models import IPSNet, Selected
from ips.nn import (
    CrossAttentionTransformer,
    Head,
    PatchReadout,
    thin_resnet,
)
from ips.patches import Indices, MemoryPatches, PatchSource
from ips.selection import Selection

D, SIDE, KEEP, CHUNK = 8, 16, 4, 3
CLASSES = {"majority": 5, "multi": 3}


def softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


def build(encoder: nn.Module | None = None, *, readout: bool = False, **options: Any) -> IPSNet:
    """Two tasks on grey patches; a fresh BatchNorm that has seen nothing is given a past."""
    encoder = encoder or thin_resnet(stages=1, width=D, channels=1, norm=True)
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert part.running_mean is not None
            assert part.running_var is not None
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    aggregator = options.pop("aggregator", None)
    aggregator = aggregator or CrossAttentionTransformer(D, tokens=len(CLASSES), heads=2)
    heads = {
        "majority": Head(D, CLASSES["majority"], activation=softmax),
        "multi": Head(D, CLASSES["multi"], activation=torch.sigmoid),
    }
    read = PatchReadout(Head(D, 3, activation=torch.sigmoid), task="multi", token=1)
    options = {"keep": KEEP, "chunk": CHUNK, **options}
    return IPSNet(encoder, aggregator, heads, readout=read if readout else None, **options)


def pixels(n: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, 1, SIDE, SIDE), dtype=torch.uint8, generator=generator)


def memory(n: int, *, seed: int = 0) -> MemoryPatches:
    return MemoryPatches(pixels(n, seed=seed), name=f"image of {n}")


class OnDemand(PatchSource):
    """A source that is not in memory: patches come from a function of their numbers."""

    extent = 7

    def __init__(self, count: int, make: Callable[[Tensor], Tensor]) -> None:
        self.count, self.make = count, make
        self.name = f"{count} on demand"
        self.shape = tuple(make(torch.tensor([0])).shape[1:])
        x = np.arange(count, dtype=np.int64)
        self.coords = np.stack([x * 10, x * 3], axis=1)

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Indices) -> Tensor:
        return self.make(torch.as_tensor(indices))


def on_demand(n: int, *, seed: int = 0) -> OnDemand:
    return OnDemand(n, lambda index: pixels(n, seed=seed)[index])


def patches_of(chosen: Selected) -> Tensor:
    assert chosen.patches is not None
    return chosen.patches


def loss_of(model: IPSNet, chosen: Selected) -> Tensor:
    output = model(chosen.patches, chosen.selection)
    labels = torch.zeros(len(patches_of(chosen)), dtype=torch.int64)
    multi = output.logits["multi"]
    return F.cross_entropy(output.logits["majority"], labels) + (
        F.binary_cross_entropy_with_logits(multi, torch.ones_like(multi))
    )


def assert_same(left: Selection, right: Selection) -> None:
    assert torch.equal(left.indices, right.indices)
    assert torch.equal(left.mask, right.mask)
    torch.testing.assert_close(left.scores, right.scores)
