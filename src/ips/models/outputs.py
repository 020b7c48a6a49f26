"""What a network returns for a batch of images, and for one of them.

Letters: B images, K patches kept of an image, C classes of a task, D embedding size, T tokens,
H heads, N patches of an image, S score channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ips.devices import double_device
from ips.models.scoring import ScoreTable
from ips.patches import pad
from ips.selection import Selection


@dataclass(frozen=True, repr=False)
class Selected:
    """Result of the select step, the input of the forward step.

    Attributes:
        selection: which patches were kept.
        patches: ``(B, K, ...)`` these patches, zeros where the selection's mask is False; None if
            embeddings were requested.
        embeddings: ``(B, K, D)`` as computed during selection; None unless requested.
        tables: the scores of each image; None if there are none.
    """

    selection: Selection
    patches: Tensor | None = None
    embeddings: Tensor | None = None
    tables: Sequence[ScoreTable] | None = None

    def __repr__(self) -> str:
        found = {"patches": self.patches, "embeddings": self.embeddings}
        shapes = [f"{name} {tuple(t.shape)}" for name, t in found.items() if t is not None]
        return f"<Selected: {', '.join([repr(self.selection), *shapes])}>"


@dataclass(frozen=True, repr=False)
class Output:
    """Result of the forward step.

    Attributes:
        logits: per task ``(B, C)``.
        attention: ``(B, T, H, K)``; None from a CNN in training.
        patch_logits: ``(B, K, C)`` from the patch-level head; None without one.
        readout_logits: ``(B, C)`` from the patch-level head; None without one.
        lead_logits: per task ``(B, C)`` from the classifiers of single patches that lead the start
            of a training; None without them.
    """

    logits: dict[str, Tensor]
    attention: Tensor | None
    patch_logits: Tensor | None
    readout_logits: Tensor | None
    lead_logits: dict[str, Tensor] | None = None

    def __repr__(self) -> str:
        shapes = ", ".join(f"{task} {tuple(t.shape)}" for task, t in self.logits.items())
        return f"<Output: logits {shapes}>"


@dataclass(frozen=True, repr=False)
class Prediction:
    """Prediction for one image, with the patches that it is based on, most important first.

    Attributes:
        name: name of the image.
        logits: ``(C,)`` per task.
        probabilities: ``(C,)`` per task.
        indices: ``(K,)`` indices of the patches in the image.
        coords: ``(K, 2)`` their top-left corners, x, y in full-resolution pixels.
        extent: side of a patch in full-resolution pixels; None if the source does not know it.
        attention: ``(K,)`` mean over heads and tasks; sums to 1.
        task_attention: ``(K,)`` per task, mean over its heads.
        patch_probabilities: ``(K, C)`` class probabilities of each patch (Sect. 4.5); None without
            a patch-level head.
        patches: N, the number of patches of the image.
    """

    name: str
    logits: dict[str, Tensor]
    probabilities: dict[str, Tensor]
    indices: Tensor
    coords: npt.NDArray[np.int64]
    extent: int | None
    attention: Tensor
    task_attention: dict[str, Tensor]
    patch_probabilities: Tensor | None
    patches: int

    def __repr__(self) -> str:
        tasks = []
        for task, p in self.probabilities.items():
            best = f" for class {int(p.argmax())}" if len(p) > 1 else ""
            tasks.append(f"{task} {float(p.max()):.2f}{best}")
        return f"<Prediction of {self.name}: {', '.join(tasks)}, from {self.origin}>"

    @property
    def origin(self) -> str:
        """How many patches the prediction is based on, in words."""
        return f"{len(self.indices):,} of {self.patches:,} patches"


def attention_from_logits(
    logits: Tensor, tasks: Sequence[str]
) -> dict[str, npt.NDArray[np.float64]]:
    """Attention ``(N,)`` of every patch per task: softmax over all N, mean over the task's heads.

    Args:
        logits: ``(N, S)`` scores of the selection, ordered by task; -inf for a skipped patch, whose
            attention is 0. A single channel counts for all tasks.
        tasks: names of the T tasks.
    """
    N, S = logits.shape
    heads, device = max(1, S // len(tasks)), double_device(logits.device)
    attention = {}
    for t, task in enumerate(tasks):
        first = t * heads if S > 1 else 0
        total = np.zeros(N)
        for channel in range(first, first + heads):  # one by one, since N may be millions
            total += logits[:, channel].to(device).double().softmax(dim=0).cpu().numpy()
        attention[task] = total / heads
    return attention


def join(parts: Sequence[Selected]) -> Selected:
    """Join the results of parts of a batch."""
    if len(parts) == 1:
        return parts[0]

    def padded(tensors: Sequence[Tensor | None]) -> Tensor | None:
        present = [row for tensor in tensors if tensor is not None for row in tensor]
        return pad(present)[0] if present else None

    def rows(name: str) -> Tensor:
        return pad([row for part in parts for row in getattr(part.selection, name)])[0]

    return Selected(
        selection=Selection(rows("indices"), rows("mask"), rows("scores")),
        patches=padded([part.patches for part in parts]),
        embeddings=padded([part.embeddings for part in parts]),
        tables=[table for part in parts for table in part.tables or ()],
    )
