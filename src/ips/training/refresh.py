"""Score only some patches of training images that come back, by their scores of earlier epochs.

A logit depends on its patch and the weights alone, and the weights change slowly once a training
has begun. So a step scores the patches that were selected last, the next best by their last scores,
those that were not scored for the longest time, and some at random. M are selected among these, by
their new scores. Some images of every epoch are scored in full, which tells how many of the patches
that full scoring selects the shortlist contains: its recall.

Letters: N patches of an image, M kept, S score channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from ips.config import Config
from ips.data.seeded import seeded_generator
from ips.models import Load, Net, ScoreTable, Selected, SelectingNet
from ips.patches import PatchSource
from ips.selection import Recall, recall, shortlist
from ips.statistics import Interval, mean
from ips.training.batches import Batch
from ips.training.data import Data, is_fresh
from ips.training.processes import Processes
from ips.training.score_store import Scores, ScoreStore

_NEXT = 3  # times M patches by their last scores, beside those selected last
_FEWEST = 4  # images of an epoch that are scored in full

AUDITED = 0.03
"""Share of the images of an epoch that are scored in full."""


@dataclass(frozen=True)
class Visit:
    """An image in a training step.

    Attributes:
        number: its number in the data set.
        known: what earlier epochs found out about its patches.
        listed: ``(N,)``, True for patches of the shortlist.
        table: where the new scores go.
    """

    number: int
    known: Scores
    listed: Tensor
    table: ScoreTable


class CachedScores(nn.Module):
    """Selects among a shortlist of the patches of each training image, and checks its recall.

    Its buffers belong to the checkpoint.

    Args:
        store: scores of earlier epochs.
        keep: M.
        share: share of the patches beyond the shortlist of the best that a step scores, half of
            them in turn and half at random.
        floor: least recall. Below it, the next epoch scores all patches, and the shortlist doubles.
        epochs: number of epochs; the last one scores all patches.
        seed: random seed.
    """

    growth: Tensor  # () factor of the length of the shortlist
    asked: Tensor  # () whether the last audit asks for an epoch that scores all patches

    def __init__(
        self, store: ScoreStore, *, keep: int, share: float, floor: float, epochs: int, seed: int
    ) -> None:
        super().__init__()
        self.store, self._keep, self._share, self._floor = store, keep, share, floor
        self._epochs, self._seed = epochs, seed
        self.register_buffer("growth", torch.ones((), dtype=torch.int64))
        self.register_buffer("asked", torch.zeros((), dtype=torch.bool))
        self._epoch, self._partial = 0, False
        self._audited: set[int] = set()
        self._reset()

    def _reset(self) -> None:
        self._recalls: list[Recall] = []
        self._scored = self._patches = 0

    def is_partial(self, epoch: int) -> bool:
        """Whether an epoch, counted from 0, scores shortlists only."""
        return self.store.filled and not self.asked and epoch + 1 < self._epochs

    def begin(self, epoch: int) -> bool:
        """Begin an epoch, counted from 0; return False if its scores on disk are gone."""
        found = self.store.begin(epoch + 1)
        self._reset()
        self._enter(epoch)
        return found

    def _enter(self, epoch: int) -> None:
        self._epoch, self._partial = epoch, self.is_partial(epoch)
        images = len(self.store.places)
        count = max(math.ceil(AUDITED * images), _FEWEST)
        order = seeded_generator(self._seed, epoch).permutation(images)
        self._audited = set(order[:count].tolist())

    def state(self) -> dict[str, Any]:
        """What a checkpoint within an epoch stores beside the buffers."""
        recalls = [[r.patches, r.attention] for r in self._recalls]
        counts = {"scored": self._scored, "patches": self._patches}
        return {"epoch": self._epoch, "store": self.store.state(), "recalls": recalls, **counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on within an epoch."""
        self._enter(state["epoch"])
        self.store.load(state["store"])
        self._recalls = [Recall(*shares) for shares in state["recalls"]]
        self._scored, self._patches = state["scored"], state["patches"]

    def choose(self, net: SelectingNet, batch: Batch, *, load: Load, seed: int) -> Selected:
        """Select M patches of each image, and store the new scores."""
        visits = [
            self._visit(net, *image) for image in zip(batch.sources, batch.numbers, strict=True)
        ]
        chosen = net.select_for_training(
            batch.sources,
            load="lazy" if self._partial else load,  # lazy: only the shortlist is read
            seed=seed,
            tables=[visit.table for visit in visits],
        )
        rows = zip(visits, chosen.selection.indices, chosen.selection.mask, strict=True)
        for visit, indices, mask in rows:
            if visit.table.done.all():  # not if all images have at most M patches
                self._learn(visit, indices[mask].cpu())
        return chosen

    def _visit(self, net: SelectingNet, source: PatchSource, number: int) -> Visit:
        numbers = torch.from_numpy(source.numbers)  # (N,)
        stored = self.store.get(number)
        known = Scores.unknown(numbers, net.channels) if stored is None else stored.of(numbers)
        listed = self._shortlist(known, number)
        table = net.empty_table(source)
        if self._partial and number not in self._audited:
            table.leave_out(~listed)
        return Visit(number, known, listed, table)

    def _shortlist(self, known: Scores, number: int) -> Tensor:
        """Which patches to score, ``(N,)``."""
        rng = seeded_generator(self._seed, self._epoch, number)
        order = torch.from_numpy(rng.permutation(len(known.numbers)))
        oldest = order[known.epochs[order].sort(stable=True).indices]
        size = int(self.growth) * _NEXT * self._keep
        rest = len(known.numbers) - size - int(known.kept.sum())
        count = math.ceil(max(self._share * rest, 0) / 2)
        others = [(oldest, count), (order, count)]
        return shortlist(known.logits, size=size, always=known.kept, others=others)

    def _learn(self, visit: Visit, kept: Tensor) -> None:
        """Store the new scores of an image and which patches were kept, ``(K,)``."""
        known, table, N = visit.known, visit.table, len(visit.listed)
        logits = table.logits.detach().float().cpu()
        scored = torch.ones(N, dtype=torch.bool) if table.listed is None else table.listed
        if table.listed is None and known.epochs.any():
            self._recalls.append(recall(logits, kept, visit.listed))
        self.store.put(
            visit.number,
            replace(
                known,
                logits=torch.where(scored.unsqueeze(1), logits, known.logits),
                epochs=torch.where(scored, self._epoch + 1, known.epochs),
                kept=torch.zeros(N, dtype=torch.bool).index_fill(0, kept, True),
            ),
        )
        self._scored += int(scored.sum())
        self._patches += N

    def recalls(self) -> tuple[Interval, Interval]:
        """Recall of patches and of attention in this epoch; undefined without an audit."""
        found = [[r.patches for r in self._recalls], [r.attention for r in self._recalls]]
        patches, attention = (mean(np.array(shares, dtype=np.float64)) for shares in found)
        return patches, attention

    def metrics(self) -> dict[str, float]:
        """Columns of ``metrics.csv``."""
        return dict(self._metrics())

    def _metrics(self) -> Iterator[tuple[str, float]]:
        yield "scored", self._scored / self._patches if self._patches else 1.0
        for name, found in zip(("recall", "recall_attention"), self.recalls(), strict=True):
            yield name, found.value
            yield f"{name}_low", found.low
            yield f"{name}_high", found.high

    def finish(self) -> str | None:
        """End an epoch: complete its file, and return what the audit changes, in words."""
        if not self._patches:
            return None
        self.store.finish()
        found, images = self.recalls()[0], len(self._recalls)
        self.asked.fill_(False)
        if not found.defined or self._epoch + 2 >= self._epochs:  # the last one scores all anyway
            return None
        words = f"audit of {images} images: recall {found}"
        if found.value < self._floor:
            self.growth.mul_(2)
            self.asked.fill_(True)
            return (
                f"{words} is below {self._floor:g}: the next epoch scores all patches, and the "
                f"shortlist grows to {self._length} M"
            )
        if self.growth > 1 and found.value >= (1 + self._floor) / 2:
            self.growth.floor_divide_(2)
            return f"{words}: the shortlist shrinks to {self._length} M"
        return None

    @property
    def _length(self) -> int:
        return 1 + _NEXT * int(self.growth)

    def forget(self) -> None:
        """Forget all scores, for a new start."""
        self.store.forget()
        self.growth.fill_(1)
        self.asked.fill_(False)
        self._reset()


def scored_again(patches: float, keep: float, share: float) -> float:
    """Mean number of patches of an image that an epoch scores, including the audit."""
    best = (1 + _NEXT) * keep
    scored = min(best + share * max(patches - best, 0), patches)
    return AUDITED * patches + (1 - AUDITED) * scored


class Auditing(Callback):
    """Begins and ends the epochs of cached scores, and says what an audit changes.

    To be called before `Starting`, which may forget the scores, and before `Saving`.
    """

    def __init__(self, cache: CachedScores, say: Callable[[str], None]) -> None:
        self._cache, self._say = cache, say

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Begin an epoch, once the training has begun to learn."""
        if learner.settled and not self._cache.begin(trainer.current_epoch):
            self._say(
                "the stored scores of the patches are gone: this epoch scores all, and the model "
                "will differ from that of an uninterrupted run"
            )

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Complete the file of scores before the checkpoint is saved."""
        if sentence := self._cache.finish():
            self._say(f"epoch {trainer.current_epoch + 1}: {sentence}")


def build_cache(
    net: Net, config: Config, data: Data, folder: Path, *, say: Callable[[str], None]
) -> CachedScores | None:
    """The cached scores that a config asks for; None, with a sentence, if they cannot be used.

    Args:
        data: data sets, before augmentation.
        folder: folder of the files.
        say: prints a sentence.
    """
    select = config.select
    if select.refresh == 1:
        return None
    reason = None
    if (count := Processes.of(config).count) > 1:
        reason = f"each of {count} devices would know the scores of its own images only"
    elif is_fresh(data.train):
        reason = "the training images are drawn anew, or moved, in every epoch"
    elif not isinstance(net, SelectingNet) or not net.scores_all_patches or net.keep is None:
        reason = f"method={config.method} does not select among all patches"
    if reason is not None:
        say(
            f"select.refresh={select.refresh:g} has no effect, and all patches are scored: {reason}"
        )
        return None
    assert isinstance(net, SelectingNet)
    assert net.keep is not None
    return CachedScores(
        ScoreStore(folder, images=len(data.train), channels=net.channels),
        keep=net.keep,
        share=select.refresh,
        floor=select.recall,
        epochs=config.train.epochs,
        seed=config.train.seed,
    )
