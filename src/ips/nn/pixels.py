"""Prepare stored patches for an encoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """Scale uint8 pixels to 0..1 and standardise them; convert features to floats.

    Args:
        mean, std: per channel, of pixels scaled to 0..1.
        memory_format: layout of the pixels, see `fastest_memory_format`.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], *, memory_format: torch.memory_format
    ) -> None:
        super().__init__()
        self.memory_format = memory_format
        for name, values in (("mean", mean), ("std", std)):
            per_channel = torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)  # (C, 1, 1)
            self.register_buffer(name, per_channel, persistent=False)

    def forward(self, patches: Tensor) -> Tensor:
        """``(n, C, h, w)`` pixels or ``(n, D_in)`` features to floats of the same shape."""
        if patches.dim() == 4:
            patches = patches.contiguous(memory_format=self.memory_format)
        if patches.dtype == torch.uint8:
            return (patches.to(self.mean.dtype) / 255 - self.mean) / self.std
        return patches.to(self.mean.dtype)


def fastest_memory_format(encoder: nn.Module) -> torch.memory_format:
    """Return channels-last, in which convolutions are fastest, wherever it is safe.

    On a CPU the gradient of a strided 1x1 convolution with few input channels can write past its
    workspace in this layout and crash the process (oneDNN issue 6035; 4 and 8 channels crash, 16
    and more do not). Networks with such a layer use the standard layout.
    """
    for part in encoder.modules():
        if (
            isinstance(part, nn.Conv2d)
            and set(part.kernel_size) == {1}
            and set(part.stride) != {1}
            and part.in_channels < 16
        ):
            return torch.contiguous_format
    return torch.channels_last
