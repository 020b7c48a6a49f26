"""Heads: from the representation of a task to its logits, and two classifiers of single patches.

Letters: B images, M patches, n patches of any images, D embedding size, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.tasks import Task

_MOMENTUM = 0.1  # of a running mean, as in BatchNorm
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": partial(torch.softmax, dim=-1),
    "sigmoid": torch.sigmoid,
}


class Head(nn.Sequential):
    """Linear layers with ReLU between them (Table 8); a single one in the paper's IPS.

    Args:
        dim: D.
        classes: C.
        activation: from logits to probabilities: ``softmax`` for one class per image, ``sigmoid``
            for a binary task or several labels, or a function.
        hidden: sizes of the hidden layers.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        activation: Literal["softmax", "sigmoid"] | Callable[[Tensor], Tensor],
        hidden: Sequence[int] = (),
    ) -> None:
        sizes = [dim, *hidden]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], classes))
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ConfigError(f"activation={activation!r}: expected {' or '.join(_ACTIVATIONS)}")
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation


class PatchReadout(nn.Module):
    """Classify single patches, trained with image labels alone (Sect. 4.5).

    A head g scores each patch, and the attention-weighted sum of these scores is compared with the
    label of the image. No gradient reaches the embeddings or the attention, so this head does not
    change the model.

    Args:
        head: g, from D to C.
        task: name of the task whose labels are used.
        token: index of the token of that task.
    """

    def __init__(self, head: Head, *, task: str, token: int) -> None:
        super().__init__()
        self.head, self.task, self.token = head, task, token

    def forward(self, x: Tensor, attention: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings ``(B, M, D)`` and attention ``(B, T, H, M)`` to patch and image logits.

        Returns:
            ``(B, M, C)`` logits of the patches, ``(B, C)`` their weighted sum.
        """
        patch_logits = self.head(x.detach())  # (B, M, C)
        a = attention[:, self.token].mean(dim=1).detach()  # (B, M)
        return patch_logits, (a.unsqueeze(1) @ patch_logits).squeeze(1)  # (B, C)


class PatchLead(nn.Module):
    """Choose patches by what each shows by itself, until attention has learnt to choose them.

    A linear classifier per task judges each patch, and the mean over the patches kept is compared
    with the label of the image, as in TopMIL. Gradients reach the encoder. So the few patches that
    tell the classes apart get a direct gradient, which attention spreads over all M at first.

    The score of a patch is how much its answers differ from those to a usual patch, the divergence
    of their probabilities. Its highest logit would not do: where most images show nothing, the
    highest is that of the class "nothing", and patches that show nothing would be chosen.

    Args:
        dim: D.
        tasks: the tasks by name.

    Attributes:
        channels: number of scores of a patch.
    """

    channels = 1
    usual: Tensor

    def __init__(self, dim: int, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.tasks = dict(tasks)
        self.heads = nn.ModuleList(nn.Linear(dim, task.outputs) for task in tasks.values())
        self.register_buffer("usual", torch.zeros(dim))  # mean embedding of the patches kept

    def reset(self) -> None:
        """Draw new weights."""
        self.usual.zero_()
        for head in self.heads:
            head.reset_parameters()  # type: ignore[operator]

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return a function from embeddings ``(n, D)`` to scores ``(n, 1)``."""
        rows = list(zip(self.tasks.values(), self.heads, strict=True))

        def score(x: Tensor) -> Tensor:
            found = [task.divergence(head(x), head(self.usual)) for task, head in rows]  # T x (n,)
            return torch.stack(found).sum(dim=0).unsqueeze(-1)

        return score

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Embeddings ``(B, M, D)`` of the patches kept to logits ``(B, C)`` of the images."""
        self.usual.lerp_(x.detach()[mask].mean(dim=0).to(self.usual), _MOMENTUM)
        rows = zip(self.tasks, self.heads, strict=True)
        return {task: mean_of_present(head(x), mask) for task, head in rows}


def highest_logit(heads: Iterable[nn.Module], x: Tensor) -> Tensor:
    """The highest logit of each patch over all heads and classes, ``(n, D)`` to ``(n, 1)``."""
    highest = [head(x).amax(dim=-1) for head in heads]  # T x (n,)
    return torch.stack(highest).amax(dim=0).unsqueeze(-1)


def mean_of_present(rows: Tensor, mask: Tensor) -> Tensor:
    """Mean ``(B, C)`` of ``(B, M, C)`` over the patches of ``mask`` ``(B, M)``."""
    present = mask.unsqueeze(-1).to(rows.dtype)
    return (rows * present).sum(dim=1) / present.sum(dim=1)
