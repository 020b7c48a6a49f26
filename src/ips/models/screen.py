"""A small network that predicts the scores of patches from a coarse view, to score fewer of them.

Letters: N patches of an image, M kept, n patches, C channels, S score channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.models.outputs import Selected
from ips.models.scoring import ScoreTable
from ips.patches import PatchSource, prefetch
from ips.selection import Recall, estimated_recall, recall, shortlist

if TYPE_CHECKING:  # it needs scipy, which a network in one's own code does without
    from ips.statistics import Interval

_SIDE = 32  # pixels of a coarse patch
_BLOCK = 1024  # coarse patches at a time
_BEST = 4  # times M patches are always scored
_SPARE = 0.02  # share of the other patches that are scored at random
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # of all patches, of which the least is taken
_OTHERS = 4  # times M patches that it learns from, beside the selected ones


@dataclass(frozen=True)
class MeanRecall:
    """The recall of shortlists over several images; see `ips.selection.Recall`.

    Attributes:
        patches: share of the selected patches.
        attention: share of their attention.
    """

    patches: Interval
    attention: Interval

    @classmethod
    def of(cls, images: Sequence[Recall]) -> MeanRecall:
        from ips.statistics import mean, ratio

        rows = [(found.patches, found.attention, found.best) for found in images]
        patches, attention, best = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return cls(mean(patches), ratio(attention, best))

    def __str__(self) -> str:
        return f"recall {self.attention} of the attention, {self.patches} of the patches"


@dataclass(frozen=True)
class Screened:
    """Which patches of an image were scored by the full encoder, and what that may miss.

    Attributes:
        scored: ``(N,)``, True for patches that the full encoder has seen.
        recall: recall of the screen on the images of its calibration.
    """

    scored: npt.NDArray[np.bool_]
    recall: MeanRecall

    def part(self, patches: slice) -> Screened:
        """The same for some of the patches."""
        return Screened(self.scored[patches], self.recall)

    def __str__(self) -> str:
        count = f"{int(self.scored.sum()):,} of {len(self.scored):,} patches scored"
        return f"screened, {self.recall}: {count}"


class Screen(nn.Module):
    """Chooses the patches to score by their logits, predicted from patches of 32 x 32 px.

    Args:
        channels: C.
        outputs: S.

    Attributes:
        share: () share of the patches of an image to score; 1 until `calibrate`, or if no less will
            do, so that all are scored.
        recall: (2, 3) recall of patches and of attention with this share, and their intervals.
        floor: () least recall of attention.
    """

    share: Tensor
    recall: Tensor
    floor: Tensor

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, width, size in ((channels, 16, 5), (16, 32, 3), (32, 64, 3)):
            layers += [nn.Conv2d(inputs, width, size, stride=2, padding=size // 2), nn.ReLU()]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(2 * 64, outputs)
        self.register_buffer("share", torch.ones(()))
        self.register_buffer("recall", torch.zeros(2, 3))
        self.register_buffer("floor", torch.ones(()))

    def forward(self, patches: Tensor) -> Tensor:
        """Coarse patches ``(n, C, h, w)`` uint8 to logits ``(n, S)``."""
        x = self.layers(patches.float() / 127.5 - 1)  # (n, 64, h / 8, w / 8)
        logits: Tensor = self.head(torch.cat([x.mean(dim=(2, 3)), x.amax(dim=(2, 3))], dim=1))
        return logits

    def estimate(self, source: PatchSource) -> Tensor:
        """Predicted logits ``(N, S)`` of all patches of an image, on the CPU."""
        # One table from the start: small ones that stay would scatter the memory of the pixels.
        logits = torch.empty(len(source), self.head.out_features)  # (N, S)
        with torch.no_grad():
            for indices, patches in prefetch(
                source.coarse(_SIDE), size=_BLOCK, device=self.share.device
            ):
                logits[indices] = self(patches).float().cpu()
        return logits

    def leave_out(self, source: PatchSource, table: ScoreTable, *, keep: int) -> None:
        """Mark all patches as done but the most promising and some random ones."""
        N, share = len(source), _decimal(self.share)
        size = _size(N, keep, share)
        if share >= 1 or size >= N or table.listed is not None:
            return
        best = shortlist(self.estimate(source), size=size, always=torch.zeros(N, dtype=torch.bool))
        order = torch.randperm(N, generator=torch.Generator().manual_seed(N))
        spare = torch.zeros(N, dtype=torch.bool)
        spare[order[~best[order]][: math.ceil(_SPARE * (N - size))]] = True
        table.leave_out(~(best | spare), spare=spare)

    def is_doubtful(self, table: ScoreTable, *, keep: int) -> bool:
        """Whether the random patches show that the shortlist misses too much attention."""
        if table.listed is None or table.spare is None:
            return False
        logits = table.logits.float().cpu()
        found = estimated_recall(logits, table.listed, table.spare, keep=keep)
        return found < _decimal(self.floor)

    @property
    def description(self) -> str:
        """An addition to the description of a selection; empty if all patches are scored."""
        if (share := _decimal(self.share)) >= 1:
            return ""
        return f", screened in predictions ({share:.0%} scored, {self._recall()})"

    def result(self, table: ScoreTable) -> Screened | None:
        """What to tell of a table; None if all its patches were scored."""
        if table.listed is None:
            return None
        return Screened(table.listed.numpy().copy(), self._recall())

    def _recall(self) -> MeanRecall:
        from ips.statistics import Interval

        return MeanRecall(*(Interval(*map(_decimal, row)) for row in self.recall))

    def distil(self, sources: Sequence[PatchSource], chosen: Selected) -> Tensor:
        """The loss of the predicted logits of the selected and some other scored patches."""
        assert chosen.tables is not None
        selection, losses = chosen.selection, []
        rows = zip(sources, chosen.tables, selection.indices, selection.mask, strict=True)
        for source, table, indices, mask in rows:
            kept = indices[mask].cpu()
            others = (table.logits != -torch.inf).all(dim=1).cpu()
            others[kept] = False
            order = torch.randperm(len(others))
            some = order[others[order]][: _OTHERS * len(kept)]
            learnt = torch.cat([kept, some]).sort().values  # (n,)
            patches = source.coarse(_SIDE).read(learnt).to(self.share.device)
            source.close()
            found = self(patches)  # (n, S)
            truth = table.logits[learnt.to(table.logits.device)].detach().to(found)
            # Only differences within an image matter to the selection.
            losses.append(F.smooth_l1_loss(found - found.mean(dim=0), truth - truth.mean(dim=0)))
        return torch.stack(losses).mean()

    def calibrate(self, images: Sequence[Sequence[Recall]], *, floor: float) -> MeanRecall:
        """Take the least share of patches whose recall of attention is at least ``floor``.

        Args:
            images: the recalls of every image, see `recalls`.
        """
        self.floor.fill_(floor)
        for share, column in zip(_SHARES, zip(*images, strict=True), strict=True):
            found = MeanRecall.of(column)
            rows = [(r.value, r.low, r.high) for r in (found.patches, found.attention)]
            self.share.fill_(share)
            self.recall.copy_(torch.tensor(rows))
            if found.attention.value >= floor:
                break
        return found


def recalls(estimate: Tensor, logits: Tensor, kept: Tensor, *, keep: int) -> list[Recall]:
    """The recall in one image with each share of patches that a screen may pass on.

    Args:
        estimate: ``(N, S)`` predicted logits.
        logits: ``(N, S)`` true logits.
        kept: ``(K,)`` indices of the patches that full scoring selects.
        keep: M.
    """
    N, none = len(estimate), torch.zeros(len(estimate), dtype=torch.bool)
    return [
        recall(logits, kept, shortlist(estimate, size=_size(N, keep, share), always=none))
        for share in _SHARES
    ]


def _decimal(number: Tensor) -> float:
    """A number that was given in decimals, without the rounding error of single precision.

    Apple's GPUs have no double precision, which buffers would otherwise have.
    """
    return round(float(number), 6)


def _size(patches: int, keep: int, share: float) -> int:
    return min(max(_BEST * keep, math.ceil(share * patches)), patches)
