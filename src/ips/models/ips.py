"""Iterative Patch Selection: look at every patch without gradients, learn from M of them.

Letters: B images, K patches kept of an image, D embedding size, T tokens, S channels of score.

The select step is in `ips.models.selecting`, the choice itself in `ips.selection`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Unpack

from torch import Tensor, nn

from ips.models.outputs import Output
from ips.models.selecting import SelectingNet, SelectSettings
from ips.nn import Aggregator, Head
from ips.selection import Selection


class IPSNet(SelectingNet):
    """Patch selection and patch aggregation that share one attention (Sect. 2).

    Args:
        encoder: from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)``.
        aggregator: combines embeddings, and scores them for selection: the paper's
            `ips.nn.CrossAttentionTransformer`, or `ips.nn.GatedAttention` (Appendix E).
        heads: one per task, in the order of the aggregator's tokens.
        settings: ``keep`` (M, None for all) and ``chunk`` (I); optionally ``mode``, ``skip_blank``
            and ``compile`` (see `SelectingNet`), ``position``, ``readout``, ``mean``, ``std`` and
            ``slice_size`` (see `Net`).
    """

    def __init__(
        self,
        encoder: nn.Module,
        aggregator: Aggregator,
        heads: Mapping[str, Head],
        **settings: Unpack[SelectSettings],
    ) -> None:
        super().__init__(encoder, heads, **settings)
        assert isinstance(aggregator, nn.Module)
        self.aggregator: Aggregator = aggregator
        # at random there is nothing to score, but perhaps to see which patches are blank
        self.channels = int(self.skip_blank) if self.mode == "random" else aggregator.channels

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """The aggregator's attention logits: what is selected is what is attended to."""
        return self.aggregator.scorer()

    def aggregate(self, x: Tensor, selection: Selection) -> Output:
        """Embeddings ``(B, K, D)`` of the patches kept to an answer per task (Sect. 2.2)."""
        placed = self._placed(x, selection.indices)
        return self._aggregated(self.aggregator, x, placed, selection.mask)
