"""Training images that look a little different in every epoch."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from ips.config import AugmentConfig
from ips.data.seeded import SeededDataset, seeded_generator
from ips.patches.source import PatchSource
from ips.patches.view import Matrix, View, ViewedPatches

Item = tuple[PatchSource, dict[str, Tensor]]

_LUMA = np.array([0.299, 0.587, 0.114])
_HUE = 0.1  # turn of the colour circle, relative to the change of saturation


class Images(Protocol):
    """Images by number, each with its labels."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Item: ...


class AugmentedData(SeededDataset[Item]):
    """A data set with a random view of each image, which depends on seed, epoch and image only.

    All patches of an image are changed alike. Selection and learning see the same view, in whatever
    order they read.

    Args:
        data: the images.
        settings: resolved section ``augment`` of a config.
    """

    def __init__(self, data: Images, settings: AugmentConfig, *, seed: int) -> None:
        super().__init__("augmented images", count=len(data), seed=seed, fresh=True)
        self.data, self.settings = data, settings

    def __getitem__(self, index: int) -> Item:
        self.check_index(index)
        source, labels = self.data[index]
        view = draw_view(seeded_generator(self.seed, int(self._epoch), index), self.settings)
        return ViewedPatches(source, view), labels

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if hasattr(self.data, "set_epoch"):
            self.data.set_epoch(epoch)


def draw_view(rng: np.random.Generator, settings: AugmentConfig) -> View:
    """A random view within the limits of the settings."""
    # Always the same numbers in the same order, so that one setting does not change the others.
    left, up, turn, blur = rng.random(4).tolist()
    colour, stain, shift, form = (2 * rng.random(count) - 1 for count in (4, 3, 2, 2))
    change = settings.colour or 0.0
    brightness, contrast, saturation, _ = (1 + change * colour).tolist()
    x, y = ((settings.shift or 0.0) * shift).tolist()
    return View(
        mirrored=settings.flips in ("horizontal", "both") and left < 0.5,
        upside_down=settings.flips == "both" and up < 0.5,
        turns=int(4 * turn) if settings.turns else 0,
        size=(1 + (settings.size or 0.0)) ** float(form[0]),
        tilt=(settings.tilt or 0.0) * float(form[1]),
        shift=(x, y),
        brightness=brightness,
        contrast=contrast,
        colours=_colours(saturation, _HUE * change * float(colour[3])),
        stains=_stains(1 + (settings.stain or 0.0) * stain),
        blur=(settings.blur or 0.0) * max(0.0, 2 * blur - 1),
    )


def _colours(saturation: float, hue: float) -> Matrix:
    """Mix with grey, and turn the colour circle by ``hue`` of a full turn."""
    if saturation == 1 and hue == 0:
        return View.colours
    cos, sin = math.cos(2 * math.pi * hue), math.sin(2 * math.pi * hue) / math.sqrt(3)
    third = (1 - cos) / 3
    # A rotation around the grey axis, which keeps grey grey.
    turned = np.full((3, 3), third) + cos * np.eye(3)
    turned += sin * np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    return _as_matrix((saturation * np.eye(3) + (1 - saturation) * _LUMA) @ turned)


def _stains(amounts: npt.NDArray[np.float64]) -> Matrix:
    """Change the amounts of haematoxylin, eosin and DAB (Ruifrok and Johnston)."""
    if (amounts == 1).all():
        return View.stains
    from skimage.color import hed_from_rgb, rgb_from_hed

    return _as_matrix((hed_from_rgb @ np.diag(amounts) @ rgb_from_hed).T)


def _as_matrix(values: npt.NDArray[np.float64]) -> Matrix:
    red, green, blue = (tuple(row) for row in values.tolist())
    return red, green, blue
