"""Two views of a patch: the augmentations of Table 9, on the device of the patches.

Letters: b patches, C channels.
"""

from __future__ import annotations

import kornia.augmentation as K
import torch
from torch import Tensor, nn

from ips.errors import ConfigError

#: Side of a view in BYOL; smaller patches give views of their own size.
VIEW = 224
#: Kernel size of the blur in Table 9, for views of this side.
_BLUR = 23


class TwoViews(nn.Module):
    """Makes two views of every patch, which differ in the probability of blur and solarisation.

    For grey patches, the colour jitter changes only brightness and contrast, and the conversion to
    grey is omitted.

    Args:
        patch: side of a patch; a view has the same side, but at most 224.
        channels: C, 1 or 3.
    """

    def __init__(self, *, patch: int, channels: int) -> None:
        super().__init__()
        if patch < 4:
            raise ConfigError(f"a patch size of {patch} px: use patches of at least 4 px")
        self.size = min(patch, VIEW)
        self.first = _augmentations(self.size, channels, blur=1.0, solarize=0.0)
        self.second = _augmentations(self.size, channels, blur=0.1, solarize=0.2)

    @torch.no_grad()
    def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Patches ``(b, C, h, w)`` uint8 to two views ``(b, C, size, size)`` in 0..1."""
        # Half precision would round pixels, and not all augmentations support it.
        with torch.autocast(patches.device.type, enabled=False):
            pixels = patches.float() / 255
            # rounding may leave the range
            return self.first(pixels).clamp_(0, 1), self.second(pixels).clamp_(0, 1)


class QuarterTurns(nn.Module):
    """Rotates each patch by 0, 90, 180 or 270 degrees, with equal probability.

    Unlike Kornia's rotation, this does not interpolate.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Rotate patches ``(b, C, h, h)``."""
        turns = torch.randint(4, (len(x),)).to(x.device)  # (b,)
        out = torch.empty_like(x)
        for turn in range(4):
            here = turns == turn
            out[here] = x[here].rot90(turn, (2, 3))
        return out


def blur_kernel(size: int) -> int:
    """Kernel size of the blur for views of ``size``: proportional, odd, and at least 3.

    >>> [blur_kernel(size) for size in (224, 128, 64, 32, 16)]
    [23, 13, 7, 3, 3]
    """
    return max(3, 2 * round((_BLUR * size / VIEW - 1) / 2) + 1)


def _augmentations(size: int, channels: int, *, blur: float, solarize: float) -> nn.Sequential:
    """The rows of Table 9, with the probabilities of ``blur`` and ``solarize`` in one view."""
    colour = channels > 1
    saturation, hue = (0.8, 0.2) if colour else (0.0, 0.0)
    threshold = 150 / 255
    augmentations = [
        QuarterTurns(),
        K.RandomVerticalFlip(p=0.5),
        K.RandomHorizontalFlip(p=0.5),
        K.RandomResizedCrop((size, size), scale=(0.2, 1.0), cropping_mode="resample"),
        K.ColorJitter(brightness=0.8, contrast=0.8, saturation=saturation, hue=hue, p=0.8),
        K.RandomGrayscale(p=0.2) if colour else None,
        K.RandomGaussianBlur(blur_kernel(size), (0.1, 2.0), p=blur),  # sigma as in BYOL
        K.RandomSolarize((threshold, threshold), (0.0, 0.0), p=solarize) if solarize else None,
    ]
    return nn.Sequential(*(module for module in augmentations if module is not None))
