"""What the two steps of a model hand on.

Letters: B images, K patches kept of an image, C classes, D embedding size, T tokens, H heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ips.patches import pad
from ips.selection import Selection


@dataclass(frozen=True)
class Selected:
    """The outcome of the select step, ready for the forward step.

    Attributes:
        selection: which patches.
        patches: ``(B, K, ...)`` those patches, zeros where the selection's mask is False; None if
            embeddings were asked for.
        embeddings: ``(B, K, D)`` as found during selection, None if they were not asked for.
    """

    selection: Selection
    patches: Tensor | None = None
    embeddings: Tensor | None = None


@dataclass(frozen=True)
class Output:
    """What the forward step gives.

    Attributes:
        logits: per task ``(B, C)``.
        attention: ``(B, T, H, K)``; None from a CNN in training.
        patch_logits: ``(B, K, C)`` of the read-out head, None without one.
        readout_logits: ``(B, C)`` of the read-out head, None without one.
    """

    logits: dict[str, Tensor]
    attention: Tensor | None
    patch_logits: Tensor | None
    readout_logits: Tensor | None


def join(groups: Sequence[Selected]) -> Selected:
    """Selections of images, one at a time, as those of a batch."""

    def rows(get: str) -> Tensor:
        return pad([getattr(group.selection, get)[0] for group in groups])[0]

    def padded(tensors: Sequence[Tensor | None]) -> Tensor | None:
        present = [tensor[0] for tensor in tensors if tensor is not None]
        return pad(present)[0] if present else None

    return Selected(
        selection=Selection(rows("indices"), rows("mask"), rows("scores")),
        patches=padded([group.patches for group in groups]),
        embeddings=padded([group.embeddings for group in groups]),
    )
