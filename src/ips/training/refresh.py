"""Estimate the scores of patches by those of earlier epochs, for training images that come back.

A logit depends on its patch and the weights alone, and the weights change slowly once a training
has begun. So a step scores the patches that were selected last, the next best by their last scores,
those that were not scored for the longest time, and some at random.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ips.models import SelectingNet
from ips.patches import PatchSource
from ips.training.audit import AuditedSelection
from ips.training.score_store import Scores, ScoreStore


class CachedScores(AuditedSelection):
    """Selects among the best patches of earlier epochs.

    Args:
        store: scores of earlier epochs.
        keep, share, floor, epochs, seed: see `AuditedSelection`.
    """

    def __init__(
        self, store: ScoreStore, *, keep: int, share: float, floor: float, epochs: int, seed: int
    ) -> None:
        super().__init__(
            images=len(store.places),
            keep=keep,
            share=share,
            floor=floor,
            epochs=epochs,
            seed=seed,
            asked=False,
        )
        self.store = store

    def is_partial(self, epoch: int) -> bool:
        return self.store.filled and super().is_partial(epoch)

    def begin(self, epoch: int) -> str | None:
        found = self.store.begin(epoch + 2)  # the first file is that of `begin_with_features`
        super().begin(epoch)
        if found:
            return None
        return (
            "the stored scores of the patches are gone: this epoch scores all, and the model "
            "will differ from that of an uninterrupted run"
        )

    def estimate(self, net: SelectingNet, source: PatchSource, number: int) -> Scores:
        numbers = torch.from_numpy(source.numbers)  # (N,)
        stored = self.store.get(number)
        return Scores.unknown(numbers, net.channels) if stored is None else stored.of(numbers)

    def learn(self, number: int, scores: Scores) -> None:
        self.store.put(number, scores)

    def finish(self) -> str | None:
        if self.patches:
            self.store.finish()
        return super().finish()

    def state(self) -> dict[str, Any]:
        return super().state() | {"store": self.store.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self.store.load(state["store"])

    def forget(self) -> None:
        super().forget()
        self.store.forget()

    def close(self) -> None:
        self.store.remove()
