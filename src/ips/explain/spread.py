"""How evenly attention is spread over the patches of an image, in absolute terms.

Letters: N patches of an image, n of them with any attention.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np
import numpy.typing as npt

# Attention is nearly uniform if it is spread over at least this share of the patches, and the
# highest is at most this many times an even share. The first alone would not notice a few small
# objects among many patches.
_UNIFORM_SHARE = 0.9
_UNIFORM_RATIO = 3.0


@dataclass(frozen=True)
class Spread:
    """The spread of the attention.

    Attributes:
        patches: n, the number of patches with any attention.
        highest: the highest attention of a patch; all together have 1.
        entropy: entropy of the attention in nats, from 0 (one patch has all of it) to ln n (equal).
    """

    patches: int
    highest: float
    entropy: float

    @property
    def effective(self) -> float:
        """The perplexity: number of patches with equal attention that have the same entropy."""
        return exp(self.entropy)

    @property
    def ratio(self) -> float:
        """The highest attention as a multiple of an even share, which is 1 / n."""
        return self.highest * self.patches

    @property
    def uniform(self) -> bool:
        """Whether attention is nearly uniform, so that it points to no patch.

        It is if its perplexity is at least 90 % of n, and the highest is at most 3 even shares.
        """
        spread_out = self.effective >= _UNIFORM_SHARE * self.patches
        return self.patches > 1 and spread_out and self.ratio <= _UNIFORM_RATIO

    @property
    def scale(self) -> str:
        """The highest attention in words.

        >>> spread(np.array([0.5, 0.25, 0.25, 0])).scale
        '50 %, 1.5 x an even share'
        """
        return f"{100 * self.highest:.3g} %, {times(self.ratio)} an even share"

    def __str__(self) -> str:
        """The spread in plain words.

        >>> print(spread(np.array([0.7, 0.1, 0.1, 0.1])))
        highest attention of 4 patches: 70 %, 2.8 x an even share
        >>> print(spread(np.array([0.6, 0.4])))
        attention is nearly uniform, highest of 2 patches: 60 %, 1.2 x an even share
        """
        start = "attention is nearly uniform, highest" if self.uniform else "highest attention"
        noun = "patch" if self.patches == 1 else "patches"
        return f"{start} of {self.patches:,} {noun}: {self.scale}"


def spread(attention: npt.NDArray[np.floating]) -> Spread:
    """The spread of ``(N,)`` attention; patches without attention, which were skipped, are ignored.

    Selection keeps the patches with the most attention, which may be alike although they stand out
    from the others. For a method that scores all patches, give the attention of all N therefore,
    and for one that does not, that of the selected ones.
    """
    positive = attention[attention > 0].astype(np.float64)  # (n,) without nan
    p = positive / positive.sum()
    return Spread(len(p), float(np.max(p, initial=0.0)), float(np.sum(p * -np.log(p))))


def times(ratio: float) -> str:
    """A multiple in words.

    >>> times(3.14), times(1234.5)
    ('3.1 x', '1,234 x')
    """
    return f"{ratio:.1f} x" if ratio < 10 else f"{ratio:,.0f} x"
