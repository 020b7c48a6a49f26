"""The forward step with tensors alone, to export a network.

Letters: B images, M patches kept of each image, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ips.models.selecting import SelectingNet
from ips.selection import Selection


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

    def forward(self, patches: Tensor, indices: Tensor) -> dict[str, Tensor]:
        """Patches ``(B, M, ...)`` and their indices ``(B, M)`` to the logits of each task.

        The indices matter only for a network with positions.
        """
        x = self.net.embed(patches, None)  # (B, M, D)
        mask = torch.ones_like(indices, dtype=torch.bool)
        return self.net.aggregate(x, Selection(indices, mask, mask.float())).logits  # (B, C) each
