"""Random patch selection (RPS): M patches by chance, and the same transformer as IPS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from torch import nn

from ips.models.ips import IPSNet
from ips.models.selecting import SelectSettings
from ips.nn import Aggregator, Head


class RPSNet(IPSNet):
    """IPS with its selection taken away: what it is worth is the difference to this.

    At every step, and for every test image, M other patches are drawn.
    """

    def __init__(
        self,
        encoder: nn.Module,
        aggregator: Aggregator,
        heads: Mapping[str, Head],
        **settings: Unpack[SelectSettings],
    ) -> None:
        settings["mode"] = "random"
        super().__init__(encoder, aggregator, heads, **settings)
