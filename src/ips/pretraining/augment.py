"""Two views of a patch: the augmentations of Table 9 of the paper, on the patches' own device.

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

#: BYOL's side of a view; a smaller patch gives views of its own size.
VIEW = 224


@dataclass(frozen=True)
class Augmentation:
    """A row of Table 9.

    Args:
        type: as the table calls it.
        parameters: as the table gives them.
        probability: in the first view and in the second.
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

    Grey patches have no saturation and no hue: of the colour jitter brightness and contrast are
    left, and Grayscale is left out.

    Args:
        patch: side of a patch; that of a view is the same, at most 224.
        channels: C, 1 or 3.
    """

    def __init__(self, *, patch: int, channels: int) -> None:
        super().__init__()
        if patch < 4:
            raise ConfigError(f"a patch size of {patch} px: take patches of at least 4 px")
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
        """``(b, C, h, w)`` uint8 to two of ``(b, C, size, size)`` between 0 and 1."""
        # half precision would round pixels, and not all of this runs in it
        with torch.autocast(patches.device.type, enabled=False):
            pixels = patches.float() / 255
            # rounding of sums may leave the range by a little
            return self.first(pixels).clamp_(0, 1), self.second(pixels).clamp_(0, 1)


class QuarterTurns(nn.Module):
    """Turn each patch by one of these multiples of 90 degrees, all equally likely.

    Pixels only move. Kornia's own interpolates, and turns by 90 and 180 degrees more often.
    """

    def __init__(self, degrees: Sequence[int]) -> None:
        super().__init__()
        self.degrees = degrees

    def forward(self, x: Tensor) -> Tensor:
        """``(b, C, h, h)`` to the same."""
        chosen = torch.randint(len(self.degrees), (len(x),)).to(x.device)  # (b,)
        out = torch.empty_like(x)
        for number, degrees in enumerate(self.degrees):
            here = chosen == number
            out[here] = x[here].rot90(degrees // 90, (2, 3))
        return out


def blur_kernel(size: int) -> int:
    """Side of the blur for views of ``size``: 23 for 224, in proportion below; odd, at least 3.

    >>> [blur_kernel(size) for size in (224, 128, 64, 32, 16)]
    [23, 13, 7, 3, 3]
    """
    widest = next(row for row in TABLE if row.type == "GaussianBlur").parameters["kernel_size"]
    return int(max(3, 2 * round((widest * size / VIEW - 1) / 2) + 1))


def _build(row: Augmentation, probability: float, *, size: int, channels: int) -> nn.Module:
    """A row of the table as a module."""
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
            raise ValueError(f"no augmentation is called {row.type}")
    return module
