"""A changed view of an image: turned, resized, recoloured or blurred patches of a moved grid.

Letters: k patches, C channels.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from ips.patches.source import Coords, Indices, Part, PatchSource

_BLOCK = 2**22  # values that are changed at a time, as floats
_GREY = 127.5  # contrast changes the distance from it

Matrix = tuple[tuple[float, float, float], tuple[float, float, float], tuple[float, float, float]]

IDENTITY: Matrix = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@dataclass(frozen=True)
class View:
    """The changes of all patches of an image, the same whenever a patch is read.

    Attributes:
        mirrored: whether patches are mirrored from left to right.
        upside_down: whether patches are mirrored from top to bottom.
        turns: quarter turns of patches.
        size: factor of the size of what a patch shows, about its centre.
        tilt: rotation about its centre in degrees, against the clock.
        shift: shift of the grid along x and y, as a fraction of its stride.
        brightness, contrast: factors, 1 for no change.
        colours: what each new channel of RGB takes from the old ones.
        stains: the same for the optical density, which is proportional to the amount of stain.
        blur: standard deviation in pixels.
    """

    mirrored: bool = False
    upside_down: bool = False
    turns: int = 0
    size: float = 1.0
    tilt: float = 0.0
    shift: tuple[float, float] = (0.0, 0.0)
    brightness: float = 1.0
    contrast: float = 1.0
    colours: Matrix = IDENTITY
    stains: Matrix = IDENTITY
    blur: float = 0.0

    def apply(self, patches: Tensor) -> Tensor:
        """Change patches ``(k, C, h, w)`` uint8."""
        if self.changes_values and len(patches):
            size = max(1, _BLOCK // max(1, patches[:1].numel()))
            blocks = [self._changed(block) for block in patches.split(size)]
            patches = torch.cat(blocks) if len(blocks) > 1 else blocks[0]
        axes = [axis for axis, flip in ((2, self.upside_down), (3, self.mirrored)) if flip]
        if axes or self.turns:
            patches = patches.flip(axes).rot90(self.turns, (2, 3)).contiguous()
        return patches

    @property
    def changes_values(self) -> bool:
        """Whether patches are more than moved, mirrored and turned."""
        plain = View()
        names = ("size", "tilt", "brightness", "contrast", "colours", "stains", "blur")
        return any(getattr(self, name) != getattr(plain, name) for name in names)

    def _changed(self, patches: Tensor) -> Tensor:
        x = patches.float()
        if self.size != 1 or self.tilt:
            x = _moved(x, self.size, math.radians(self.tilt))
        if self.stains != IDENTITY and x.shape[1] == 3:
            density = (256 / (x + 1)).log()
            x = 256 * _mixed(density, self.stains).neg().exp() - 1
        if self.colours != IDENTITY and x.shape[1] == 3:
            x = _mixed(x, self.colours)
        factor = self.brightness * self.contrast
        if factor != 1 or self.brightness != 1:
            x = x * factor + self.brightness * (1 - self.contrast) * _GREY
        if self.blur:
            x = _blurred(_blurred(x, self.blur), self.blur)
        return x.round().clamp(0, 255).to(torch.uint8)


def _moved(x: Tensor, size: float, tilt: float) -> Tensor:
    """Resize and rotate square patches ``(k, C, h, h)`` about their centres; edges are mirrored."""
    cos, sin = math.cos(tilt) / size, math.sin(tilt) / size
    where = x.new_tensor([[cos, -sin, 0.0], [sin, cos, 0.0]]).expand(len(x), 2, 3)
    grid = F.affine_grid(where, list(x.shape), align_corners=False)  # (k, h, h, 2)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def _mixed(x: Tensor, matrix: Matrix) -> Tensor:
    """New channels from the old ones, without a matrix product, whose rounding depends on k."""
    red, green, blue = x.unbind(dim=1)
    return torch.stack([r * red + g * green + b * blue for r, g, b in matrix], dim=1)


def _blurred(x: Tensor, sigma: float) -> Tensor:
    """Blur ``(k, C, h, w)`` along the last axis, and exchange the last two axes."""
    radius = math.ceil(2.5 * sigma)
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-radius, radius + 1)]
    padded = F.pad(x, (radius, radius, 0, 0), mode="replicate")
    width, result = x.shape[-1], torch.zeros_like(x)
    for first, weight in enumerate(weights):
        result += weight / sum(weights) * padded[..., first : first + width]
    return result.transpose(2, 3)


class ViewedPatches(PatchSource):
    """The patches of ``source``, changed as ``view`` says."""

    def __init__(self, source: PatchSource, view: View) -> None:
        self.source, self.view = source.shifted(view.shift), view
        self.name, self.extent, self.shape = source.name, source.extent, source.shape

    @cached_property
    def coords(self) -> Coords:
        return self.source.coords

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        return self.source.numbers

    @property
    def known_blank(self) -> npt.NDArray[np.bool_]:
        # a change of values may round two pixels of one colour differently
        return super().known_blank if self.view.changes_values else self.source.known_blank

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.source.parts

    def __len__(self) -> int:
        return len(self.source)

    def read(self, indices: Indices) -> Tensor:
        return self.view.apply(self.source.read(indices))

    def coarse(self, side: int) -> PatchSource:
        small = copy(self)
        small.source = self.source.coarse(side)
        small.shape = small.source.shape
        scale = small.shape[-1] / self.shape[-1]
        small.view = replace(self.view, blur=self.view.blur * scale)
        return small

    def check(self) -> None:
        self.source.check()

    def close(self) -> None:
        self.source.close()
