"""Compare a training step that scores all patches with one that scores some again.

    python benchmarks/refresh_step.py                  # 20 steps of each, one after the other
    python benchmarks/refresh_step.py --width 800 --height 600 --steps 5

Images of noise, half-overlapping patches of 100 px, the whole ResNet-18. Prints the medians and
their ratio, by the clock and by the processor, which matters if other programs use it, too.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ips.models import IPSNet, Load, Selected
from ips.nn import CrossAttentionTransformer, Head, build_encoder
from ips.patches import ImagePatches, PatchSource, open_patches
from ips.training.audit import AUDITED
from ips.training.batches import Batch
from ips.training.refresh import CachedScores
from ips.training.score_store import ScoreStore

Choose = Callable[[IPSNet, Batch], Selected]


def draw(width: int, height: int, seed: int) -> PatchSource:
    """An image of noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    source = open_patches(pixels, patch_size=100, stride=50)
    assert isinstance(source, ImagePatches)
    return source


def build(keep: int) -> tuple[IPSNet, torch.optim.Optimizer]:
    """A network and its optimizer, always with the same weights."""
    torch.manual_seed(0)
    encoder = build_encoder("resnet18").net
    heads = {"sign": Head(512, 4, activation="softmax")}
    transformer = CrossAttentionTransformer(512, tokens=1, heads=8)
    net = IPSNet(encoder, transformer, heads, keep=keep, chunk=32, mean=(0.5,), std=(0.25,))
    return net, torch.optim.AdamW(net.parameters(), lr=1e-5)


def step(net: IPSNet, optimizer: torch.optim.Optimizer, batch: Batch, choose: Choose) -> Tensor:
    """A training step; returns the seconds of the clock and of the processor."""
    wall, busy = time.perf_counter(), time.process_time()
    output = net.learn(choose(net, batch))
    loss = torch.nn.functional.cross_entropy(output.logits["sign"], batch.labels["sign"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return torch.tensor([time.perf_counter() - wall, time.process_time() - busy])


@dataclass(frozen=True)
class Measured:
    """Medians of seconds by clock and by processor, ``(arm, clock)``, and ratios of single steps.

    Attributes:
        patches: N.
        scored: share of the patches that were scored again.
        seconds: all patches, then some; by the clock, then by the processor.
        ratios: by the processor, of each step.
    """

    patches: int
    scored: float
    seconds: list[list[float]]
    ratios: list[float]


def measure(
    width: int, height: int, *, keep: int, share: float, batch: int, steps: int, load: Load
) -> Measured:
    """Take turns with a step that scores all patches and one that scores some again."""
    batches = []
    for first in range(0, batch * steps, batch):
        numbers = list(range(first, first + batch))
        sources = [draw(width, height, seed=i) for i in numbers]
        batches.append(Batch(sources, {"sign": torch.arange(batch) % 4}, numbers))
    with tempfile.TemporaryDirectory() as folder:
        (full, full_optimizer), (part, part_optimizer) = build(keep), build(keep)
        # As in a large data set, of which 3 % are audited: their cost is added by the caller.
        images = max(batch * steps, 1000)
        store = ScoreStore(Path(folder), images=images, channels=part.channels)
        cache = CachedScores(store, keep=keep, share=share, floor=0.95, epochs=10, seed=0)

        def all_patches(net: IPSNet, batch: Batch) -> Selected:
            return net.select_for_training(batch.sources, load=load, seed=0)

        def some_patches(net: IPSNet, batch: Batch) -> Selected:
            return cache.choose(net, batch, load=load, seed=0)

        cache.begin(0)
        for one_batch in batches:
            some_patches(part, one_batch)
        cache.finish()
        cache.begin(1)
        seconds = []
        for number, one_batch in enumerate(batches):
            one = step(full, full_optimizer, one_batch, all_patches)
            other = step(part, part_optimizer, one_batch, some_patches)
            seconds.append(torch.stack([one, other]))
            print(f"step {number + 1}: {one[0]:.2f} s with all, {other[0]:.2f} s with some")
    return Measured(
        patches=len(batches[0].sources[0]),
        scored=cache.metrics()["scored"],
        seconds=torch.stack(seconds).median(dim=0).values.tolist(),
        ratios=[float(one[1] / other[1]) for one, other in seconds],
    )


def with_audit(one: float, other: float) -> float:
    """Seconds of a mean step, of which some score all patches for the audit."""
    return (1 - AUDITED) * other + AUDITED * one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--height", type=int, default=1200)
    parser.add_argument("--keep", type=int, default=10)
    parser.add_argument("--share", type=float, default=0.1, help="select.refresh")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    found = measure(**vars(options), load="eager")
    print(
        f"N = {found.patches}, M = {options.keep}: {found.scored:.1%} of the patches scored again"
    )
    for name, (one, other) in zip(("clock", "processor"), np.transpose(found.seconds), strict=True):
        print(
            f"{name}: {one:.2f} s with all, {other:.2f} s with some: {one / other:.1f} times "
            f"faster, {one / with_audit(one, other):.1f} times with the audit of {AUDITED:.0%} of "
            "the images"
        )
    ratios = found.ratios
    print(
        f"ratios of single steps: {min(ratios):.1f} to {max(ratios):.1f}, median "
        f"{statistics.median(ratios):.1f}"
    )


if __name__ == "__main__":
    main()
