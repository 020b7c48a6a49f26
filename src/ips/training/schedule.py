"""The learning rate of every step: linear warm-up, then cosine down to a thousandth."""

from __future__ import annotations

import math


def learning_rate_factor(step: int, *, warmup: int, total: int) -> float:
    """Share of the peak learning rate at ``step`` of ``total`` (Appendix D.1).

    The first step is number 0, and both parts count it as done, as the authors' code does.

    >>> [round(learning_rate_factor(s, warmup=2, total=10), 3) for s in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 0.962, 0.309, 0.001]
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min((step + 1 - warmup) / max(total - warmup, 1), 1.0)
    return 0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * progress))
