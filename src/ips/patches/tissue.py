"""The tissue filter: which patches of a slide contain tissue.

Otsu's threshold on grey values separates tissue from glass (Appendix D.6 of the paper). The slide
is read block by block at a coarse level, once for the histogram and once to mark the pixels that
are tissue. There are three kinds of slides:

- Tissue is darker than glass. Black pixels were never scanned and count as neither.
- If most scanned pixels are dark and few are bright, the slide is fluorescent, and tissue is
  brighter than the background. The brightest channel counts, since blue is dark as a grey value.
- If most scanned pixels are nearly black but many are bright, the dark ones were never scanned
  either, but stored with noise.

Letters: N patches of a slide, n of them kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.errors import PatchError
from ips.images import Image
from ips.images.colour import as_rgb
from ips.images.image import Pixels
from ips.patches import mask as masks
from ips.patches.artefacts import SMALLEST, blurred, is_ink, sharpness
from ips.patches.image import ImagePatches
from ips.patches.mask import Mask
from ips.patches.source import Box, PatchSubset

Progress = Callable[[int, int], None]
"""Callback that receives the number of steps done and the number of all steps."""
Counts = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Background = Literal["auto", "bright", "dark"]

MIN_SHARE = 0.01
"""Smallest share of a patch that must be tissue, as in the paper."""

NEARLY_ALL = 0.95
"""Share of patches with tissue that is suspicious: a slide has empty parts."""

# At the default level a pixel is at most this many level-0 pixels wide, and a patch at least this
# many pixels.
_MAX_DOWNSAMPLE, _MIN_PATCH = 16, 16
# Otsu's method splits any histogram. Noise with a standard deviation of 10 gives two classes whose
# means are 16 grey values apart; the palest stained tissue and glass are some 25 apart. Dark
# background has less noise, with a standard deviation of up to 3.
_MIN_CONTRAST, _MIN_CONTRAST_FLUORESCENT = 16, 5
# Unscanned parts of a slide are nearly black; the background of a fluorescent one is dark.
_NEARLY_BLACK, _DARK = 31, 63
# Glass is brighter than this; a fluorescent slide has a smaller share of such pixels.
_BRIGHT, _MAX_BRIGHT = 200, 0.1
# Patches whose focus is judged at a time.
_READ = 16


@dataclass(frozen=True)
class TissueSettings:
    """How tissue is searched.

    Attributes:
        level: level of the slide to search; by default see :func:`tissue_level`.
        min_share: smallest share of a patch that must be tissue.
        background: whether the slide is ``bright`` or ``dark`` where there is no tissue.
        skip_pen: whether marks of a felt pen are no tissue.
        skip_blurred: whether patches that are out of focus are left out.
    """

    level: int | None = None
    min_share: float = MIN_SHARE
    background: Background = "auto"
    skip_pen: bool = False
    skip_blurred: bool = False


@dataclass(frozen=True)
class Tissue:
    """The patches of a slide that contain tissue.

    Args:
        patches: all N patches of the slide.
        kept: ``(n,)`` indices of the patches with tissue, ascending.
        settings: how tissue was searched, at a level that is not None.
        threshold: highest grey value of tissue, None if tissue and background cannot be separated.
        fluorescent: whether tissue is brighter than the threshold instead.
        reason: why no patch was kept, None if any was.
        mask: which pixels are tissue; None if there is no threshold, or in a file of an earlier
            version.
    """

    patches: ImagePatches
    kept: Counts
    settings: TissueSettings
    threshold: int | None
    fluorescent: bool
    reason: str | None
    mask: Mask | None

    @property
    def source(self) -> PatchSubset:
        """The patches with tissue."""
        return PatchSubset(self.patches, self.kept)


def tissue_level(patches: ImagePatches) -> int:
    """Return the default level for the tissue search.

    It is the coarsest level whose pixels are at most 16 level-0 pixels wide and at which a patch
    has at least 16 x 16 pixels, or level 0.
    """
    extent = patches.patch_size * patches.downsample
    return patches.image.get_best_level_for_downsample(min(_MAX_DOWNSAMPLE, extent / _MIN_PATCH))


def tissue_patches(
    patches: ImagePatches,
    settings: TissueSettings | None = None,
    *,
    progress: Progress | None = None,
) -> Tissue:
    """Find the patches with tissue. A slide without tissue gives no patches and the reason.

    Args:
        patches: patches of a slide, at any resolution.
        settings: how to search.
        progress: callback that receives the number of blocks done and the number of all blocks.
    """
    settings, image = settings or TissueSettings(), patches.image
    level = tissue_level(patches) if settings.level is None else settings.level
    settings = replace(settings, level=level)
    image.tile_size(level)  # raises if there is no such level
    step, extent = image.level_downsamples[level], patches.patch_size * patches.downsample
    if extent < step:
        raise PatchError(
            f"{image.name}: a patch is {extent:g} px wide, and a pixel of level {level} "
            f"{step:g}: search for tissue at a finer level"
        )
    blocks = list(_blocks(image, level))
    report = progress or (lambda done, total: None)
    by_grey, by_brightest = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for done, block in enumerate(blocks):
        pixels, counts = _read(image, level, block), None
        if settings.skip_pen and pixels.shape[-1] == 3:
            counts = ~is_ink(pixels).reshape(-1)
        for histogram, values in ((by_grey, _grey(pixels)), (by_brightest, _brightest(pixels))):
            some = values.reshape(-1) if counts is None else values.reshape(-1)[counts]
            histogram += np.bincount(some, minlength=256)
        report(done + 1, 2 * len(blocks))
    split = _split(by_grey, by_brightest, settings.background)
    if split.threshold is None:
        none = np.empty(0, np.int64)
        return Tissue(patches, none, settings, None, split.fluorescent, split.reason, None)

    def marked() -> Iterator[tuple[Box, Bools]]:
        for done, block in enumerate(blocks):
            pixels = _read(image, level, block)
            tissue = split.is_tissue[_brightest(pixels) if split.fluorescent else _grey(pixels)]
            if settings.skip_pen and pixels.shape[-1] == 3:
                tissue &= ~is_ink(pixels)
            yield block, tissue
            report(len(blocks) + done + 1, 2 * len(blocks))

    mask = Mask.of(step, image.level_dimensions[level], marked())
    kept = np.flatnonzero(mask.shares(patches) >= settings.min_share).astype(np.int64)
    side = "above" if split.fluorescent else "up to"
    reason = f"no patch has {settings.min_share:.0%} of its area at grey {side} {split.threshold}"
    if settings.skip_blurred and len(kept):
        mask = mask.without(patches.coords[kept[_out_of_focus(patches, kept)]], extent)
        kept = np.flatnonzero(mask.shares(patches) >= settings.min_share).astype(np.int64)
    return Tissue(
        patches,
        kept,
        settings,
        split.threshold,
        split.fluorescent,
        None if len(kept) else reason,
        mask,
    )


def _out_of_focus(patches: ImagePatches, kept: Counts) -> Bools:
    """Which of the kept patches are out of focus, ``(n,)``."""
    if patches.patch_size < SMALLEST:
        raise PatchError(
            f"{patches.name}: patches of {patches.patch_size} px are too small to see whether they "
            f"are in focus: use patches of at least {SMALLEST} px"
        )
    values: list[float] = []
    for first in range(0, len(kept), _READ):
        values += sharpness(patches.read(kept[first : first + _READ]))
    return blurred(values)


@dataclass(frozen=True)
class _Split:
    """Otsu's threshold, or None and the reason why there is none."""

    threshold: int | None
    fluorescent: bool
    reason: str | None = None
    unscanned: int = 0  # highest grey value of pixels that were never scanned

    @property
    def is_tissue(self) -> Bools:
        """Which grey values are tissue, ``(256,)``."""
        assert self.threshold is not None
        values = np.arange(256)
        if self.fluorescent:
            return values > self.threshold
        return (values > self.unscanned) & (values <= self.threshold)


def _split(by_grey: Counts, by_brightest: Counts, background: Background) -> _Split:
    """Find the threshold; both histograms have the same pixels."""
    from skimage.filters import threshold_otsu

    scanned, unscanned = by_grey.copy(), 0
    scanned[0] = 0
    few_bright = bool(scanned[_BRIGHT + 1 :].sum() < _MAX_BRIGHT * scanned.sum())
    fluorescent = background == "dark"
    if background == "auto":
        fluorescent = few_bright and _mostly(by_grey, _DARK)
    if fluorescent:
        scanned = by_brightest
    elif _mostly(scanned, _NEARLY_BLACK):
        unscanned = _NEARLY_BLACK
        scanned[: unscanned + 1] = 0
    shades = np.flatnonzero(scanned)
    if not len(shades) or shades[-1] == 0:
        return _Split(None, fluorescent, "all of it is black")
    if len(shades) == 1:
        return _Split(None, fluorescent, f"all of it has the same grey value, {shades[0]}")
    values = np.arange(shades[0], shades[-1] + 1)
    counts = scanned[values]
    threshold = int(threshold_otsu(hist=(counts, values)))
    lower = values <= threshold
    low, high = (np.average(values[part], weights=counts[part]) for part in (lower, ~lower))
    if high - low < (_MIN_CONTRAST_FLUORESCENT if fluorescent else _MIN_CONTRAST):
        reason = f"nothing stands out: its darker pixels are {high - low:.1f} shades darker"
        return _Split(None, fluorescent, reason)
    return _Split(threshold, fluorescent, unscanned=unscanned)


def _mostly(histogram: Counts, darkest: int) -> bool:
    """Whether most pixels are at most this bright."""
    return bool(2 * histogram[: darkest + 1].sum() > histogram.sum())


def _blocks(image: Image, level: int) -> Iterator[Box]:
    """Divide the scanned part of a level into blocks of whole tiles and at most ``BLOCK`` pixels.

    A tile or strip that is larger makes a block of its own.
    """
    step = image.level_downsamples[level]
    width, height = image.level_dimensions[level]
    left, top, across, down = (round(side / step) for side in image.bounds)
    right, bottom = min(left + across, width), min(top + down, height)
    tile_width, tile_height = image.tile_size(level) or (width, 1)
    w = min(width, max(1, masks.BLOCK // tile_height // tile_width) * tile_width)
    h = max(1, masks.BLOCK // w // tile_height) * tile_height
    for y in range(top // h * h, bottom, h):
        for x in range(left // w * w, right, w):
            x0, y0 = max(x, left), max(y, top)
            yield x0, y0, min(x + w, right) - x0, min(y + h, bottom) - y0


def _read(image: Image, level: int, block: Box) -> Pixels:
    """Read a block ``(h, w, 1 or 3)``."""
    x, y, width, height = block
    step = image.level_downsamples[level]
    pixels = image.read_region((round(x * step), round(y * step)), level, (width, height))
    return pixels if image.channels == 1 else as_rgb(pixels)


def _grey(pixels: Pixels) -> Pixels:
    """Grey values ``(h, w)``."""
    if pixels.shape[-1] == 1:
        return pixels[..., 0]
    return np.asarray(PILImage.fromarray(pixels).convert("L"))


def _brightest(pixels: Pixels) -> Pixels:
    """The brightest channel ``(h, w)``."""
    brightest: Pixels = reduce(np.maximum, np.moveaxis(pixels, -1, 0))
    return brightest
