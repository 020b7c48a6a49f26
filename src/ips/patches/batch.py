"""Pad images with different numbers of patches to one tensor with a mask.

Letters: B images, N patches of the image with the most.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Stack the rows ``(n_b, ...)`` of each image to ``(B, N, ...)``, padded with zeros.

    Returns:
        the padded tensor, and its mask ``(B, N)``: False for padding.

    >>> padded, mask = pad([torch.ones(2, 3), torch.ones(1, 3)])
    >>> padded.shape, mask.tolist()
    (torch.Size([2, 2, 3]), [[True, True], [True, False]])
    """
    if len(rows) == 1:  # no padding, and no copy of the table of a huge image
        return rows[0].unsqueeze(0), rows[0].new_ones(1, len(rows[0]), dtype=torch.bool)
    counts = torch.tensor([len(row) for row in rows], device=rows[0].device)
    N = int(counts.max())
    mask = torch.arange(N, device=counts.device) < counts.unsqueeze(1)  # (B, N)
    padded = rows[0].new_zeros(len(rows), N, *rows[0].shape[1:])
    for b, row in enumerate(rows):
        padded[b, : len(row)] = row
    return padded, mask
