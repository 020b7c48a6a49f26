"""Time and memory of a training on this machine, from a quick measurement.

Letters: B images of a batch, N patches of an image, M kept.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import torch
from torch import Tensor

from ips.config import Config
from ips.devices import pick_device, synchronize
from ips.models import Net
from ips.nn.embedding import blank
from ips.patches import MemoryPatches, PatchSource
from ips.training.audit import scored_again
from ips.training.data import Data, open_source
from ips.training.feature_start import EMBEDDED, PATCHES
from ips.training.model import build_model, resolve

_SAMPLE = 128  # patches of the measurement
_LEARNT = 8
_TIMES = 8  # the quickest counts: other programs may use the processor, too
_BEGINNING = 0.25  # share of the epochs before a training has begun, which look at all patches
_BASE = 700 * 2**20  # bytes of Python, PyTorch and Lightning


@dataclass(frozen=True)
class Cost:
    """What the steps of a training cost, in seconds and bytes.

    Attributes:
        open: time to open an image, and to decode it if it is decoded whole.
        read, score: time per patch, to read it and to score it without gradients.
        learn: time per patch that is kept, forward and backward.
        saved: memory per patch that is kept, for the backward pass.
        patch: memory of a patch.
        model: memory of the weights, their gradients and the optimizer's state.
        blank: share of patches of a single colour.
        embeds: whether attention learns from embeddings of all patches before the first epoch.
    """

    open: float
    read: float
    score: float
    learn: float
    saved: int
    patch: int
    model: int
    blank: float = 0.0
    embeds: bool = False

    def start_seconds(self, *, train: int, patches: float) -> float:
        """Time before the first epoch, with so many images."""
        look = self.open + min(patches, PATCHES) * (self.read + self.score)
        return min(train, EMBEDDED) * look if self.embeds else 0.0

    def epoch_seconds(
        self, *, train: int, validation: int, patches: float, keep: float, refresh: float = 1.0
    ) -> float:
        """Mean time of an epoch with so many images, of ``patches`` patches on average.

        With ``refresh`` < 1, most epochs score only some patches.
        """
        look = self.open + patches * (self.read + self.score)
        scored = scored_again(patches, keep, refresh)
        again = self.open + scored * (self.read + self.score)
        looking = _BEGINNING if refresh < 1 else 1.0
        training = looking * look + (1 - looking) * again + keep * self.learn
        return train * training + validation * look

    def peak_bytes(self, *, batch: int, patches: float, keep: float, load: str) -> int:
        """Peak memory of a training step, of images with up to ``patches`` patches."""
        held = {"eager": batch * patches, "sequential": patches}.get(load, 2 * _SAMPLE)
        learnt = batch * keep * (self.saved + self.patch)
        return round(_BASE + self.model + held * self.patch + learnt)


def measure(config: Config, path: Path) -> Cost:
    """Measure a config on one image: a second or two.

    Args:
        config: settings; its method selects patches.
        path: an image of usual size.
    """
    # settings that need labels or validation images, which cost nothing
    train = config.train.model_copy(update={"balance": "none", "result": None, "patience": None})
    config = config.model_copy(update={"train": train})
    with open_source(path, config.patches) as source:
        return _measure(resolve(config, Data(train=[(source, {})], test=[])), source)


def _measure(config: Config, source: PatchSource) -> Cost:
    net = build_model(config).to(pick_device())
    count = min(len(source), _SAMPLE)
    some = torch.linspace(0, len(source) - 1, count).long()
    start = perf_counter()
    source.read(some[:1])
    opened = perf_counter()
    patches = source.read(some)
    read = (perf_counter() - opened) / count  # also waiting for a slow disk
    memory = MemoryPatches(patches, name=source.name)
    net.forward_eval([memory], load="eager")  # folds the encoder
    score = _quickest(lambda: net.forward_eval([memory], load="eager")) / count
    learn, saved = _learn(net, patches[: min(_LEARNT, config.select.keep or _LEARNT)])
    weights = sum(weight.numel() for weight in net.parameters())
    return Cost(
        open=max(opened - start - read, 0.0),
        read=read,
        score=score,
        learn=learn,
        saved=saved,
        patch=patches[0].nbytes,
        model=4 * 4 * weights,  # weights, gradients, two moments
        blank=float(blank(patches).float().mean()),
        embeds=config.train.start == "features",
    )


def _learn(net: Net, patches: Tensor) -> tuple[float, int]:
    """Time and memory per patch of a forward and backward pass."""
    images = [MemoryPatches(patches)] * 2
    held: dict[int, int] = {}  # bytes of each tensor that the backward pass needs

    def remember(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    def step() -> None:
        held.clear()
        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            output = net.forward_train(images, load="eager", seed=0)
        torch.stack([logits.square().mean() for logits in output.logits.values()]).sum().backward()

    net.train()
    step()
    seconds = _quickest(step)
    weights = sum(weight.untyped_storage().nbytes() for weight in net.parameters())
    count = len(images) * len(patches)
    return seconds / count, max(sum(held.values()) - weights, 0) // count


def _quickest(run: Callable[[], object]) -> float:
    """The shortest time of several runs, with all threads and with one.

    If other programs use the processors, too, threads that wait for one another are several times
    slower than a single one.
    """
    threads = torch.get_num_threads()
    seconds = []
    try:
        for count in {threads, 1}:
            torch.set_num_threads(count)
            seconds += [_seconds(run) for _ in range(_TIMES)]
    finally:
        torch.set_num_threads(threads)
    return min(seconds)


def _seconds(run: Callable[[], object]) -> float:
    """The time of a computation; that of the processor, if other programs use it, too."""
    start, busy = perf_counter(), process_time()
    run()
    if (device := pick_device()).type != "cpu":
        synchronize(device)
        return perf_counter() - start  # the processor waits
    return min(perf_counter() - start, process_time() - busy)


def available_bytes() -> int | None:
    """Memory of this machine; None if the system does not tell."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
