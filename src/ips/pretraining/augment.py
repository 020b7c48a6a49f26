"""Two views of a patch: the augmentations of Table 9, on the device of the patches.

Letters: b patches, C channels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import kornia.augmentation as K
import torch
from torch import Tensor, nn

from ips.errors import ConfigError

#: Side of a view in BYOL; smaller patches give views of their own size.
VIEW = 224


@dataclass(frozen=True)
class Augmentation:
    """A row of Table 9.

    Attributes:
        type: name in the table.
        parameters: parameters in the table.
        probability: probability in the first and in the second view.
    """

    type: str
    parameters: Mapping[str, Any]
    probability: tuple[float, float]


TABLE = (
    Augmentation("Rotation", {"degrees": (0, 90, 180, 270)}, (1.0, 1.0)),
    Augmentation("VerticalFlip", {}, (0.5, 0.5)),
    Augmentation("HorizontalFlip", {}, (0.5, 0.5)),
    Augmentation("ResizedCrop", {"scale": (0.2, 1.0)}, (1.0, 1.0)),
    Augmentation(
        "ColorJitter",
        {"brightness": 0.8, "contrast": 0.8, "saturation": 0.8, "hue": 0.2},
        (0.8, 0.8),
    ),
    Augmentation("Grayscale", {}, (0.2, 0.2)),
    Augmentation("GaussianBlur", {"kernel_size": 23}, (1.0, 0.1)),
    Augmentation("Solarize", {"threshold": 150}, (0.0, 0.2)),
)


class TwoViews(nn.Module):
    """Makes two views of every patch, each with the probabilities of its column in the table.

    For grey patches, the colour jitter changes only brightness and contrast, and Grayscale is
    omitted.

    Args:
        patch: side of a patch; a view has the same side, but at most 224.
        channels: C, 1 or 3.
    """

    def __init__(self, *, patch: int, channels: int) -> None:
        super().__init__()
        if patch < 4:
            raise ConfigError(f"a patch size of {patch} px: use patches of at least 4 px")
        self.size = min(patch, VIEW)
        self.first, self.second = (
            nn.Sequential(
                *(
                    _build(row, row.probability[view], size=self.size, channels=channels)
                    for row in TABLE
                    if row.probability[view] and not (channels == 1 and row.type == "Grayscale")
                )
            )
            for view in (0, 1)
        )

    @torch.no_grad()
    def forward(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """Patches ``(b, C, h, w)`` uint8 to two views ``(b, C, size, size)`` in 0..1."""
        # Half precision would round pixels, and not all augmentations support it.
        with torch.autocast(patches.device.type, enabled=False):
            pixels = patches.float() / 255
            # rounding may leave the range
            return self.first(pixels).clamp_(0, 1), self.second(pixels).clamp_(0, 1)


class QuarterTurns(nn.Module):
    """Rotates each patch by one of the given multiples of 90 degrees, with equal probability.

    Unlike Kornia's rotation, this does not interpolate.
    """

    def __init__(self, degrees: Sequence[int]) -> None:
        super().__init__()
        self.degrees = degrees

    def forward(self, x: Tensor) -> Tensor:
        """Rotate patches ``(b, C, h, h)``."""
        chosen = torch.randint(len(self.degrees), (len(x),)).to(x.device)  # (b,)
        out = torch.empty_like(x)
        for number, degrees in enumerate(self.degrees):
            here = chosen == number
            out[here] = x[here].rot90(degrees // 90, (2, 3))
        return out


def blur_kernel(size: int) -> int:
    """Kernel size of the blur for views of ``size``: proportional, odd, and at least 3.

    >>> [blur_kernel(size) for size in (224, 128, 64, 32, 16)]
    [23, 13, 7, 3, 3]
    """
    full = next(row for row in TABLE if row.type == "GaussianBlur").parameters["kernel_size"]
    return int(max(3, 2 * round((full * size / VIEW - 1) / 2) + 1))


def _build(row: Augmentation, probability: float, *, size: int, channels: int) -> nn.Module:
    module: nn.Module
    match row.type:
        case "Rotation":
            module = QuarterTurns(row.parameters["degrees"])
        case "VerticalFlip":
            module = K.RandomVerticalFlip(p=probability)
        case "HorizontalFlip":
            module = K.RandomHorizontalFlip(p=probability)
        case "ResizedCrop":
            scale = row.parameters["scale"]
            module = K.RandomResizedCrop((size, size), scale=scale, cropping_mode="resample")
        case "ColorJitter":
            grey = {"saturation": 0.0, "hue": 0.0} if channels == 1 else {}
            module = K.ColorJitter(**{**row.parameters, **grey}, p=probability)
        case "Grayscale":
            module = K.RandomGrayscale(p=probability)
        case "GaussianBlur":  # the range of sigma is BYOL's
            module = K.RandomGaussianBlur(blur_kernel(size), (0.1, 2.0), p=probability)
        case "Solarize":
            level = row.parameters["threshold"] / 255
            module = K.RandomSolarize((level, level), (0.0, 0.0), p=probability)
        case _:
            raise ValueError(f"unknown augmentation {row.type}")
    return module
