"""Begin with a pretrained encoder: attention first learns from stored embeddings of all patches.

A pretrained encoder tells patches apart from the first step; only attention and heads know nothing.
So the patches of the training images are embedded once, without gradients, and attention and heads
learn from these embeddings, of all patches instead of M, in hundreds of steps of milliseconds.
After that, selection keeps patches that matter from the first step of the training on.

Every fifth image is held out: its loss says when to stop, and whether anything was learnt.

Letters: B images, N patches of an image, D embedding size.
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.progress import Progress
from torch import Tensor

from ips.config import Config
from ips.data.seeded import seeded_generator
from ips.files import atomic_write
from ips.models import Output, ScoreTable, SelectingNet
from ips.models.scoring import unscored_blocks
from ips.nn import evaluating
from ips.nn.embedding import EmbeddingPass, SelectionEncoder
from ips.patches import PatchSource, pad
from ips.progress import advance
from ips.selection import Selection
from ips.tasks import build_tasks
from ips.training.data import DataSet
from ips.training.losses import mean_loss, task_shares, total_loss
from ips.training.score_store import Scores, ScoreStore
from ips.training.start import STALLED
from ips.training.tally import Tally

FEWEST = 10
"""Fewest training images from which attention can learn, and be tested, before the training."""
EMBEDDED = 1_000
"""Most images that are embedded."""
PATCHES = 16_384
"""Most patches of an image that are embedded; of a larger one, a random part is."""

_BYTES = 2**31  # most of all embeddings, with the same effect
_BATCH = 4  # images of a step: many small steps
_HELD_OUT = 5  # one image of so many
_PASSES = 20
_PATIENCE = 3  # passes without a lower loss of the images held out
_RATES = (1.0, 0.3, 0.1)  # times the learning rate of the training, of which the best is taken
_LARGEST = float(np.finfo(np.float16).max)

Labels = dict[str, Tensor]


@dataclass(frozen=True)
class FeatureStart:
    """What attention has learnt from stored embeddings.

    Attributes:
        images: number of images that were embedded.
        passes: passes over their embeddings until the loss of the images held out was lowest.
        share: this loss as a share of that of the best constant answer.
    """

    images: int
    passes: int
    share: float

    @property
    def begun(self) -> bool:
        """Whether attention has learnt something."""
        return self.share < STALLED

    def __str__(self) -> str:
        found = (
            f"attention learnt from the embeddings of {self.images} images: the loss of images "
            f"held out is {self.share:.2f} times that of a constant answer"
        )
        if math.isinf(self.share):
            found = (
                f"attention cannot learn from the embeddings of {self.images} images: those held "
                "out all have the same label"
            )
        return found if self.begun else f"{found}, so classifiers of single patches lead the start"


def begin_with_features(
    net: SelectingNet,
    config: Config,
    data: DataSet,
    *,
    folder: Path,
    progress: Progress,
    weights: Mapping[str, Tensor] | None = None,
    store: ScoreStore | None = None,
    state: str = "",
) -> FeatureStart:
    """Let attention and heads learn from embeddings; leave them as they were if they don't.

    Args:
        net: has a pretrained encoder, which stays as it is.
        data: training images.
        folder: for a folder of embeddings, which is removed in the end. After an interruption,
            those that are there are used.
        weights: weights of the classes in the loss by task.
        store: for the scores of the embedded patches; None if no epoch needs earlier scores.
        state: changes with the files of images and weights; embeddings of another are not used.
    """
    seed = config.train.seed
    numbers = seeded_generator(seed, len(data)).permutation(len(data))[:EMBEDDED].tolist()
    settings = f"{config.model_dump_json()}\n{state}".encode()
    own = folder / f"embeddings-{hashlib.sha256(settings).hexdigest()[:12]}"
    _remove(folder, but=own)
    own.mkdir(parents=True, exist_ok=True)
    bar = progress.add_task("embedding", total=len(numbers), note="all patches, once")
    bags = []
    with evaluating(net):
        embed = SelectionEncoder(net.normalise).begin(net.encoder)
        for number in numbers:
            bags.append(_embedded(net, embed, data, number, own, most=_BYTES // len(numbers)))
            advance(progress, bar)
    progress.remove_task(bar)
    with torch.random.fork_rng(devices=[net.device] if net.device.type == "cuda" else []):
        torch.manual_seed(seed)
        passes, share = _learn(net.train(), config, bags, progress, weights)
    found = FeatureStart(len(bags), passes, share)
    if store is not None and found.begun:
        _store_scores(net, dict(zip(numbers, bags, strict=True)), store)
    _remove(folder)
    return found


def _remove(folder: Path, *, but: Path | None = None) -> None:
    """Remove embeddings, such as those of an interrupted start with other settings."""
    for found in folder.glob("embeddings-*"):
        if found != but:
            shutil.rmtree(found)


@dataclass(frozen=True)
class _Bag:
    """The stored embeddings of an image.

    Attributes:
        path: file with the indices ``(n,)`` of the patches that are not blank, and their
            embeddings ``(n, D)`` in half precision.
        sampled: indices of the patches that were read.
        numbers: ``(N,)`` numbers of all patches of the image, see `PatchSource.numbers`.
    """

    path: Path
    sampled: Tensor
    numbers: Tensor
    labels: Labels

    def read(self) -> tuple[Tensor, Tensor]:
        """Indices ``(n,)`` and embeddings ``(n, D)``."""
        with np.load(self.path, allow_pickle=False) as file:
            return torch.from_numpy(file["indices"]), torch.from_numpy(file["x"]).float()


def _embedded(
    net: SelectingNet,
    embed: EmbeddingPass,
    data: DataSet,
    number: int,
    folder: Path,
    *,
    most: int,
) -> _Bag:
    """Embed an image, unless its file is there; ``most`` is the size of the file in bytes."""
    source, labels = data[number]
    dim = next(net.heads[0].parameters()).shape[1]  # of the first linear layer
    order = seeded_generator(number, len(source)).permutation(len(source))
    count = max(min(most // (2 * dim), PATCHES), 1)
    sampled = torch.from_numpy(order[:count]).sort().values
    path = folder / f"{number}.npz"
    if not path.is_file():
        indices, x = _embeddings(net, embed, source, sampled)
        with atomic_write(path) as file:
            np.savez(file, indices=indices.numpy(), x=x.clamp(-_LARGEST, _LARGEST).half().numpy())
    source.close()
    return _Bag(path, sampled, torch.from_numpy(source.numbers), labels)


def _embeddings(
    net: SelectingNet, embed: EmbeddingPass, source: PatchSource, sampled: Tensor
) -> tuple[Tensor, Tensor]:
    """Indices ``(n,)`` of those patches that selection does not skip, and embeddings ``(n, D)``."""
    table = ScoreTable(torch.zeros(len(source), 1))
    table.skip(torch.ones(len(source)).index_fill(0, sampled, 0).nonzero().squeeze(1))
    groups = unscored_blocks([source], [table], net.device, skip_blank=net.skip_blank)
    blocks = [
        (block.indices, embed(block.patches).cpu())
        for group in groups
        for block in group
        if len(block.indices)
    ]
    if not blocks:  # only blank patches: one of them stands for all
        first = sampled[:1]
        blocks = [(first, embed(source.read(first).to(net.device)).cpu())]
    indices, rows = zip(*blocks, strict=True)
    return torch.cat(indices), torch.cat(rows)


def _learn(
    net: SelectingNet,
    config: Config,
    bags: Sequence[_Bag],
    progress: Progress,
    weights: Mapping[str, Tensor] | None,
) -> tuple[int, float]:
    """Train all but the encoder; return the best number of passes, and its share of the loss.

    A learning rate that suits the encoder can be too high for attention, so lower ones are tried,
    too. Each begins with the same weights.
    """
    assert config.train.lr is not None
    encoder = {id(weight) for weight in net.encoder.parameters()}
    parameters = [weight for weight in net.parameters() if id(weight) not in encoder]
    best = [weight.detach().clone() for weight in parameters]
    before, passes, lowest = best, 0, math.inf
    for factor in _RATES:
        _set(parameters, before)
        optimizer = torch.optim.AdamW(
            parameters, lr=factor * config.train.lr, weight_decay=config.train.weight_decay
        )
        bar = progress.add_task("attention", total=_PASSES, note="from the embeddings")
        for number, share in _passes(net, optimizer, config, bags, weights):
            if share < min(lowest, STALLED):
                best = [weight.detach().clone() for weight in parameters]
            if share < lowest:
                passes, lowest = number, share
            progress.advance(bar)
        progress.remove_task(bar)
    _set(parameters, best)
    return passes, lowest


def _passes(
    net: SelectingNet,
    optimizer: torch.optim.Optimizer,
    config: Config,
    bags: Sequence[_Bag],
    weights: Mapping[str, Tensor] | None,
) -> Iterator[tuple[int, float]]:
    """Pass over the embeddings until the loss of the images held out falls no more.

    Yields the number of each pass, and this loss as a share of that of a constant answer.
    """
    tasks, options = build_tasks(config.tasks), _options(config, weights)
    held = max(len(bags) // _HELD_OUT, 1)
    known = bags[held:] or bags
    passes, lowest = 0, math.inf
    for number in range(1, _PASSES + 1):
        for batch in torch.randperm(len(known)).split(_BATCH):
            output, labels = _answers(net, [known[i] for i in batch.tolist()])
            loss = total_loss(net, tasks, output, labels, **options)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        share = _share(net, config, bags[:held], weights)
        yield number, share
        if share < lowest:
            passes, lowest = number, share
        if number >= passes + _PATIENCE:
            return


def _set(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for weight, value in zip(parameters, values, strict=True):
            weight.copy_(value)


def _store_scores(net: SelectingNet, bags: Mapping[int, _Bag], store: ScoreStore) -> None:
    """Store the scores of the embedded patches, from which the first epoch can choose."""
    store.begin(1)
    with evaluating(net):
        score = net.scorer()
        for number, bag in bags.items():
            indices, x = bag.read()
            x = net.add_position(x.to(net.device), indices.to(net.device))  # (n, D)
            scores = Scores.unknown(bag.numbers, net.channels)
            scores.logits[bag.sampled] = -torch.inf  # blank ones
            scores.logits[indices] = score(x).float().cpu()  # (n, S)
            scores.epochs[bag.sampled] = 1
            store.put(number, scores)
    store.finish()


def _answers(net: SelectingNet, bags: Sequence[_Bag]) -> tuple[Output, Labels]:
    """The answers from all stored patches of B images, and their labels."""
    rows = [bag.read() for bag in bags]
    x, mask = pad([found.to(net.device) for _, found in rows])  # (B, N, D), (B, N)
    indices, _ = pad([found.to(net.device) for found, _ in rows])  # (B, N)
    labels = {name: torch.stack([bag.labels[name] for bag in bags]) for name in bags[0].labels}
    labels = {name: values.to(net.device) for name, values in labels.items()}
    return net.aggregate(x, Selection(indices, mask, mask.to(x))), labels


def _share(
    net: SelectingNet, config: Config, bags: Sequence[_Bag], weights: Mapping[str, Tensor] | None
) -> float:
    """The loss of these images, as a share of that of the best constant answer."""
    tasks, options = build_tasks(config.tasks), _options(config, weights)
    tally = Tally(tasks, net.device)
    with evaluating(net):
        for first in range(0, len(bags), _BATCH):
            output, labels = _answers(net, bags[first : first + _BATCH])
            shares = task_shares(tasks, labels)
            if shares.any():
                loss = mean_loss(tasks, output.logits, labels, **options)
                count = len(bags[first : first + _BATCH])  # the last may be smaller
                tally.task_losses += [loss.unsqueeze(0)] * count
                tally.shares += [shares] * count
            tally.add_labels(labels)
    if not tally.shares:  # no label is known
        return math.inf
    loss, _, chance = tally.start_losses(**options).tolist()
    return loss / chance if chance > 0 else math.inf


def _options(config: Config, weights: Mapping[str, Tensor] | None) -> dict[str, Any]:
    return {"weights": weights, "smoothing": config.train.smoothing}
