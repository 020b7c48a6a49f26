"""DeepMIL (Ilse et al. 2018): gated attention over all N patches, every one with gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from ips.models.rps import RPSNet
from ips.models.selecting import SelectSettings
from ips.nn import GatedAttention, Head


class DeepMIL(RPSNet):
    """No selection: all patches are embedded and aggregated in training.

    With ``keep`` it is a random sample of so many patches, drawn anew at every step: what DeepMIL
    can do in the memory of IPS.

    Args:
        encoder: see `ips.models.net.Net`.
        dim: D, size of its embeddings.
        heads: one per task; Table 8 gives their layers.
        hidden: D_h, 128 for DeepMIL and 1,024 for DeepMIL+.
        settings: see `ips.models.selecting.SelectingNet`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        dim: int,
        heads: Mapping[str, Head],
        *,
        hidden: int = 128,
        **settings: Unpack[SelectSettings],
    ) -> None:
        attention = GatedAttention(dim, tokens=len(heads), hidden=hidden)
        super().__init__(encoder, attention, heads, **settings)
