"""Images have different numbers of patches: side by side in one tensor, with a mask.

Letters: B images, N patches of the image that has most.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Stack ``(n_b, ...)`` of each image into ``(B, N, ...)``, zeros where there is nothing.

    Returns:
        the padded tensor, and its mask ``(B, N)``: True where there is something.

    >>> padded, mask = pad([torch.ones(2, 3), torch.ones(1, 3)])
    >>> padded.shape, mask.tolist()
    (torch.Size([2, 2, 3]), [[True, True], [True, False]])
    """
    if len(rows) == 1:  # nothing to fill up, and a table of a huge image is not copied
        return rows[0].unsqueeze(0), rows[0].new_ones(1, len(rows[0]), dtype=torch.bool)
    counts = torch.tensor([len(row) for row in rows], device=rows[0].device)
    N = int(counts.max())
    mask = torch.arange(N, device=counts.device) < counts.unsqueeze(1)  # (B, N)
    padded = rows[0].new_zeros(len(rows), N, *rows[0].shape[1:])
    for b, row in enumerate(rows):
        padded[b, : len(row)] = row
    return padded, mask
