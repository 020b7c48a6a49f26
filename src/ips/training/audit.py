"""Score only some patches of training images, and check that the best are among these.

An estimate of the scores of all patches, of earlier epochs or from a coarse view, tells which ones
are worth scoring. M are selected among these, by their new scores. Some images of every epoch are
scored in full. They show how much attention is lost by selecting from the shortlist: its recall.

Letters: N patches of an image, M kept, S score channels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor, nn

from ips.data.seeded import seeded_generator
from ips.models import Load, MeanRecall, ScoreTable, Selected, SelectingNet
from ips.patches import PatchSource
from ips.selection import Recall, recall, shortlist
from ips.training.batches import Batch
from ips.training.score_store import Scores

_NEXT = 3  # times M patches by their estimated scores, beside those selected last
_FEWEST = 4  # images of an epoch that are scored in full

AUDITED = 0.03
"""Share of the images of an epoch that are scored in full."""


@dataclass(frozen=True)
class Visit:
    """An image in a training step.

    Attributes:
        number: its number in the data set.
        known: the estimated scores of its patches.
        listed: ``(N,)``, True for patches of the shortlist.
        table: where the new scores go.
    """

    number: int
    known: Scores
    listed: Tensor
    table: ScoreTable


class AuditedSelection(nn.Module, ABC):
    """Selects among a shortlist of the patches of each training image, and checks its recall.

    Its buffers belong to the checkpoint.

    Args:
        images: number of training images.
        keep: M.
        share: share of the patches beyond the shortlist of the best that a step scores, half of
            them in turn and half at random.
        floor: least recall of attention. Below it, the next epoch scores all patches, and the
            shortlist doubles.
        epochs: number of epochs; the last one scores all patches.
        seed: random seed.
        asked: whether the first epochs score all patches, until an audit reaches the floor.
    """

    growth: Tensor  # () factor of the length of the shortlist
    asked: Tensor  # () whether the last audit asks for an epoch that scores all patches

    def __init__(
        self,
        *,
        images: int,
        keep: int,
        share: float,
        floor: float,
        epochs: int,
        seed: int,
        asked: bool,
    ) -> None:
        super().__init__()
        self._images, self._keep, self._share, self._floor = images, keep, share, floor
        self._epochs, self._seed, self._first_asked = epochs, seed, asked
        self.register_buffer("growth", torch.ones((), dtype=torch.int64))
        self.register_buffer("asked", torch.tensor(asked))
        self.epoch, self.partial = 0, False
        self.audited: set[int] = set()
        self._reset()

    @abstractmethod
    def estimate(self, net: SelectingNet, source: PatchSource, number: int) -> Scores:
        """What is known of the patches of an image; all unknown ones are scored."""

    @abstractmethod
    def learn(self, number: int, scores: Scores) -> None:
        """Take the new scores of an image."""

    def is_partial(self, epoch: int) -> bool:
        """Whether an epoch, counted from 0, scores shortlists only."""
        return not self.asked and epoch + 1 < self._epochs

    def begin(self, epoch: int) -> str | None:
        """Begin an epoch, counted from 0; return what the user should know."""
        self._reset()
        self._enter(epoch)
        return None

    def _reset(self) -> None:
        self._recalls: list[Recall] = []
        self._scored = self.patches = 0

    def _enter(self, epoch: int) -> None:
        self.epoch, self.partial = epoch, self.is_partial(epoch)
        count = max(math.ceil(AUDITED * self._images), _FEWEST)
        order = seeded_generator(self._seed, epoch).permutation(self._images)
        self.audited = set(order[:count].tolist())

    def state(self) -> dict[str, Any]:
        """What a checkpoint within an epoch stores beside the buffers."""
        recalls = [astuple(found) for found in self._recalls]
        counts = {"scored": self._scored, "patches": self.patches}
        return {"epoch": self.epoch, "recalls": recalls, **counts}

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on within an epoch."""
        self._enter(state["epoch"])
        self._recalls = [Recall(*shares) for shares in state["recalls"]]
        self._scored, self.patches = state["scored"], state["patches"]

    def choose(self, net: SelectingNet, batch: Batch, *, load: Load, seed: int) -> Selected:
        """Select M patches of each image among the best by their estimated scores."""
        visits = [
            self._visit(net, *image) for image in zip(batch.sources, batch.numbers, strict=True)
        ]
        chosen = net.select_for_training(
            batch.sources,
            load="lazy" if self.partial else load,  # lazy: only the shortlist is read
            seed=seed,
            tables=[visit.table for visit in visits],
        )
        rows = zip(visits, chosen.selection.indices, chosen.selection.mask, strict=True)
        for visit, indices, mask in rows:
            if visit.table.done.all():  # not if all images have at most M patches
                self._learn(visit, indices[mask].cpu())
        return chosen

    def _visit(self, net: SelectingNet, source: PatchSource, number: int) -> Visit:
        known = self.estimate(net, source, number)
        listed = self._shortlist(known, number)
        table = net.empty_table(source)
        if self.partial and number not in self.audited:
            table.leave_out(~listed)
        return Visit(number, known, listed, table)

    def _shortlist(self, known: Scores, number: int) -> Tensor:
        """Which patches to score, ``(N,)``."""
        rng = seeded_generator(self._seed, self.epoch, number)
        order = torch.from_numpy(rng.permutation(len(known.numbers)))
        oldest = order[known.epochs[order].sort(stable=True).indices]
        size = self._length * self._keep - int(known.kept.sum())
        rest = len(known.numbers) - self._length * self._keep
        count = math.ceil(max(self._share * rest, 0) / 2)
        others = [(oldest, count), (order, count)]
        return shortlist(known.logits, size=size, always=known.kept, others=others)

    def _learn(self, visit: Visit, kept: Tensor) -> None:
        """Learn the new scores of an image and which patches were kept, ``(K,)``."""
        known, table, N = visit.known, visit.table, len(visit.listed)
        logits = table.logits.detach().float().cpu()
        scored = torch.ones(N, dtype=torch.bool) if table.listed is None else table.listed
        if table.listed is None and known.epochs.any():
            self._recalls.append(recall(logits, kept, visit.listed))
        self.learn(
            visit.number,
            replace(
                known,
                logits=torch.where(scored.unsqueeze(1), logits, known.logits),
                epochs=torch.where(scored, self.epoch + 2, known.epochs),
                kept=torch.zeros(N, dtype=torch.bool).index_fill(0, kept, True),
            ),
        )
        self._scored += int(scored.sum())
        self.patches += N

    def recall(self) -> MeanRecall:
        """Recall in this epoch; undefined without an audit."""
        return MeanRecall.of(self._recalls)

    def metrics(self) -> dict[str, float]:
        """Columns of ``metrics.csv``."""
        return dict(self._metrics())

    def _metrics(self) -> Iterator[tuple[str, float]]:
        yield "scored", self._scored / self.patches if self.patches else 1.0
        recall = self.recall()
        for name, found in (("recall", recall.patches), ("recall_attention", recall.attention)):
            yield name, found.value
            yield f"{name}_low", found.low
            yield f"{name}_high", found.high

    def finish(self) -> str | None:
        """End an epoch; return what the audit changes, in words."""
        recall, images = self.recall(), len(self._recalls)
        found = recall.attention
        if not found.defined:
            return None
        self.asked.fill_(False)
        if self.epoch + 2 >= self._epochs:  # the last one scores all anyway
            return None
        words = f"audit of {images} images: {recall}"
        if found.value < self._floor:
            self.growth.mul_(2)
            self.asked.fill_(True)
            return (
                f"{words}: less than {self._floor:g} of the attention, so the next epoch scores "
                f"all patches, and the shortlist grows to {self._length} M"
            )
        if self.growth > 1 and found.value >= (1 + self._floor) / 2:
            self.growth.floor_divide_(2)
            return f"{words}: the shortlist shrinks to {self._length} M"
        return None

    @property
    def _length(self) -> int:
        return 1 + _NEXT * int(self.growth)

    def forget(self) -> None:
        """Forget what was learnt, for a new start."""
        self.growth.fill_(1)
        self.asked.fill_(self._first_asked)
        self._reset()

    def close(self) -> None:
        """Delete what is needed only in a training."""


def scored_again(patches: float, keep: float, share: float) -> float:
    """Mean number of patches of an image that an epoch scores, including the audit."""
    best = (1 + _NEXT) * keep
    scored = min(best + share * max(patches - best, 0), patches)
    return AUDITED * patches + (1 - AUDITED) * scored


class Auditing(Callback):
    """Begins and ends the epochs of an audited selection, and says what an audit changes.

    To be called before `Starting`, which may forget the scores, and before `Saving`.
    """

    def __init__(self, selection: AuditedSelection, say: Callable[[str], None]) -> None:
        self._selection, self._say = selection, say

    def on_train_epoch_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """Begin an epoch, once the training has begun to learn."""
        if learner.settled and (sentence := self._selection.begin(trainer.current_epoch)):
            self._say(sentence)

    def on_train_epoch_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        """End an epoch before the checkpoint is saved."""
        if sentence := self._selection.finish():
            self._say(f"epoch {trainer.current_epoch + 1}: {sentence}")
