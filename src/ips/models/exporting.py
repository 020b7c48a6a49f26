"""Parts of a network with tensors alone, to export it.

Letters: n patches, B images, N patches of an image, M kept of each, D embedding size, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ips import selection
from ips.errors import ConfigError
from ips.models.selecting import SelectingNet
from ips.selection import Selection


class EmbeddingStep(nn.Module):
    """The encoder with the scaling of its pixels: patches ``(n, ...)`` to ``(n, D)``."""

    def __init__(self, net: SelectingNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, patches: Tensor) -> Tensor:
        """Patches ``(n, C, h, w)`` uint8, or features ``(n, D_in)``, to embeddings."""
        return self.net._encode(patches)  # (n, D)


class AggregationStep(nn.Module):
    """What follows the encoder: embeddings of the patches kept to the logits of each task."""

    def __init__(self, net: SelectingNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """Embeddings ``(B, M, D)`` and patch indices ``(B, M)`` to logits ``(B, C)`` each.

        The indices matter only for a network with positions.
        """
        mask = torch.ones_like(indices, dtype=torch.bool)
        return self.net.aggregate(x, Selection(indices, mask, mask.float())).logits


class ForwardStep(nn.Module):
    """The forward step of a network for exactly M patches of each image, for `torch.export`.

    ::

        chosen = net.select([source])
        step = ForwardStep(net).eval()
        program = torch.export.export(step, (chosen.patches, chosen.selection.indices))

    Args:
        net: the network, whose weights are shared.
    """

    def __init__(self, net: SelectingNet) -> None:
        super().__init__()
        self.net = net
        self.aggregate = AggregationStep(net)

    def forward(self, patches: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """Patches ``(B, M, ...)`` and their indices ``(B, M)`` to the logits of each task."""
        logits: dict[str, Tensor] = self.aggregate(self.net.embed(patches, None), indices)
        return logits


class WholeModel(nn.Module):
    """Selection and forward step for one image with a fixed number of patches.

    The order in which patches are visited is part of it, so it selects what the network selects
    with the same seed. All N embeddings are in memory.

    Args:
        net: the network, which selects by scores and does not skip blank patches, whose number is
            known only when they are read.
        patches: N.
        seed: random seed of the order.
    """

    order: Tensor

    def __init__(self, net: SelectingNet, *, patches: int, seed: int = 0) -> None:
        super().__init__()
        if net.skip_blank or not net.scores_all_patches:
            raise ConfigError(
                "the whole model cannot be exported with select.skip_blank or random selection: "
                "export its encoder and its aggregation, and select in between"
            )
        self.net = net
        self.aggregate = AggregationStep(net)
        mask = torch.ones(1, patches, dtype=torch.bool)
        self.register_buffer("order", selection.shuffled(mask, seed=seed), persistent=False)

    def forward(self, patches: Tensor) -> dict[str, Tensor]:
        """Patches ``(N, ...)`` to the logits ``(C,)`` of each task, and the ``indices`` kept."""
        x = self.net.embed(patches.unsqueeze(0), None)  # (1, N, D)
        choose = getattr(selection, self.net.mode)
        keep = len(patches) if self.net.keep is None else self.net.keep
        placed = self.net.add_position(x[0], torch.arange(len(patches), device=x.device))
        logits = self.net.scorer()(placed).unsqueeze(0)  # (1, N, S)
        kept: Selection = choose(logits, keep=keep, chunk=self.net.chunk, order=self.order)
        rows = x.gather(1, kept.indices.unsqueeze(-1).expand(-1, -1, x.shape[-1]))  # (1, M, D)
        answers: dict[str, Tensor] = self.aggregate(rows, kept.indices)
        return {task: values[0] for task, values in answers.items()} | {"indices": kept.indices[0]}


class PatchClassifier(nn.Module):
    """The patch-level head on single patches, whose pixels are scaled already.

    Args:
        net: the network, which has such a head (`readout` in a config).
    """

    def __init__(self, net: SelectingNet) -> None:
        super().__init__()
        if net.readout is None:
            raise ConfigError(
                "the model has no patch-level head: train it with `readout`, the name of a task"
            )
        self.encoder, self.head = net.encoder, net.readout.head

    def forward(self, x: Tensor) -> Tensor:
        """Scaled pixels ``(n, C, h, w)`` to logits ``(n, C)``."""
        logits: Tensor = self.head(self.encoder(x))
        return logits
