"""Ways to cut images into patches: patch size, stride and resolution."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean, median

from ips.advice.choices import Choice
from ips.advice.survey import FileFacts, Survey
from ips.config import PatchesConfig
from ips.patches.filtered import OTSU

_SIDES = (32, 64, 96, 128, 160, 192, 224)  # of a patch
_ACROSS = 12  # patches that the shorter side of an image is divided into
_FEWEST_ACROSS = 6
_SLIDE_SIDE = 128  # of a patch of a slide


@dataclass(frozen=True)
class Grid:
    """Patch size and stride in pixels as they are read.

    Attributes:
        downsample: full-resolution pixels of a pixel as it is read.
        hurried: whether the resolution is lower than objects need, to save time.
    """

    size: int
    stride: int
    downsample: float = 1.0
    hurried: bool = False

    def patches(self, facts: FileFacts) -> int:
        """N of an image, with padded edges."""
        if facts.kind == "features":
            return facts.patches
        sides = facts.width / self.downsample, facts.height / self.downsample
        across, down = (max(math.ceil((s - self.size) / self.stride), 0) + 1 for s in sides)
        return across * down

    def mean_patches(self, found: Survey) -> float:
        """Mean N of all images; on slides, of patches with tissue."""
        share = 1.0 if found.tissue is None else found.tissue
        return share * fmean(self.patches(facts) for facts in found.facts.values())


def grids(found: Survey, object_size: int | None, given: PatchesConfig) -> list[Grid]:
    """Ways to cut the images, all with the same patch size, the one with the most patches first.

    Args:
        object_size: usual size in pixels of what matters in an image, if it is known.
        given: settings of the command line; only those that are set count.
    """
    return [_as_given(grid, found, given) for grid in _all_grids(found, object_size)]


def _as_given(grid: Grid, found: Survey, given: PatchesConfig) -> Grid:
    """A grid with the size, stride and resolution of the command line."""
    size, stride, downsample = grid.size, grid.stride, grid.downsample
    if "size" in given.model_fields_set:
        size = given.size
        stride = size * stride // grid.size
    if "stride" in given.model_fields_set:
        stride = given.stride or size
    mpp = 10 / max(given.magnifications) if given.magnifications else given.mpp
    if given.scales:
        downsample = 1 / max(given.scales)
    elif given.level is not None:
        levels = _levels(found)
        downsample = levels[min(given.level, len(levels) - 1)]
    elif mpp and (known := [facts.mpp for facts in found.facts.values() if facts.mpp]):
        downsample = mpp / median(known)
    return replace(grid, size=size, stride=max(stride, 1), downsample=downsample)


def _all_grids(found: Survey, object_size: int | None) -> Iterator[Grid]:
    if found.kind == "features":
        yield Grid(1, 1)
        return
    usual = _SLIDE_SIDE if found.kind == "slides" else found.side / _ACROSS
    side = 1.5 * object_size if object_size else usual  # in full-resolution pixels
    needed = side / 128 if object_size and side > _SIDES[-1] else 1.0
    downsamples = _downsamples(found, needed)
    smallest = 0 if object_size or found.side < 300 else 64
    read = side / downsamples[0]
    size = min((s for s in _SIDES if s >= smallest), key=lambda s: abs(s - read))
    if found.kind == "images":
        yield Grid(size, size * 3 // 4, downsamples[0])
    for number, downsample in enumerate(downsamples):
        if number and found.side / downsample < _FEWEST_ACROSS * size:
            return
        yield Grid(size, size, downsample, hurried=number > 0)


def _downsamples(found: Survey, needed: float) -> list[float]:
    """Resolutions that all files can be read at, from about the needed one to coarser ones."""
    if _by_level(found):
        levels = _levels(found)
        nearest = min(levels, key=lambda level: abs(math.log(level / needed)))
        return levels[levels.index(nearest) :]
    factors = [float(2**power) for power in range(12)]
    if found.kind == "images":
        factors = sorted([*factors, *(1.5 * factor for factor in factors)])
    return [needed * factor for factor in factors]


def _by_level(found: Survey) -> bool:
    """Whether slides must be read at a level, since the size of a pixel is not always known."""
    return found.kind == "slides" and any(facts.mpp is None for facts in found.facts.values())


def _levels(found: Survey) -> list[float]:
    """Downsamples of the levels that all slides have."""
    fewest = min(found.facts.values(), key=lambda facts: len(facts.downsamples))
    return list(fewest.downsamples)


def patch_choices(found: Survey, grid: Grid, given: PatchesConfig, objects: str) -> list[Choice]:
    """The settings ``patches.*`` of a grid; none for feature files.

    Args:
        given: settings of the command line; the resolution is left out if it is one of them.
        objects: what is known about the size of objects.
    """
    if found.kind == "features":
        return []
    read = round(found.side / grid.downsample)
    across = f"about {max(round(read / grid.size), 1)} across the shorter side of {read} px"
    choices = [
        Choice(("patches", "size"), grid.size, f"px; {across}; {objects}"),
        Choice(("patches", "edge"), "fit", "every pixel is looked at, nothing is padded"),
    ]
    if grid.stride != grid.size:
        reason = "patches overlap, so that few objects are cut"
        choices.insert(1, Choice(("patches", "stride"), grid.stride, reason))
    fixed = any((given.level is not None, given.mpp, given.magnification, given.scale))
    if not fixed and (grid.downsample > 1 or found.kind == "slides"):
        choices.append(_resolution(found, grid))
    if found.tissue is not None:
        reason = (
            f"only patches with tissue, about {found.tissue:.0%}: `ips slides tissue` draws which"
        )
        choices.append(Choice(("patches", "tissue"), OTSU, reason))
    if len(found.channels) > 1:
        counts = " or ".join(map(str, sorted(found.channels)))
        reason = f"the files have {counts} channels; of more than three, the first three are read"
        if sorted(found.channels) == [1, 3]:
            reason = "some files are grey and some are in colour"
        choices.append(Choice(("patches", "channels"), "rgb", reason))
    return choices


def _resolution(found: Survey, grid: Grid) -> Choice:
    downsample = grid.downsample
    share = "2/3" if downsample == 1.5 else f"1/{downsample:.3g}"
    need = "or training would take too long" if grid.hurried else "so that objects fit into patches"
    reason = "the full resolution" if downsample == 1 else f"{share} of the full size, {need}"
    if _by_level(found):
        level = _levels(found).index(downsample)
        return Choice(("patches", "level"), level, f"level of the pyramid: {reason}")
    if found.kind == "slides":
        finest = max(facts.mpp or 0.0 for facts in found.facts.values())  # what all slides have
        value = float(f"{finest * downsample:.3g}")
        return Choice(("patches", "mpp"), value, f"micrometres per pixel: {reason}")
    return Choice(("patches", "scale"), float(f"{1 / downsample:.3g}"), reason)
