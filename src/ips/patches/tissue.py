"""The tissue filter: which patches of a slide contain tissue.

Otsu's threshold on grey values separates tissue from glass (Appendix D.6 of the paper). The slide
is read block by block at a coarse level, once for the histogram and once to count the tissue pixels
of each patch. There are three kinds of slides:

- Tissue is darker than glass. Black pixels were never scanned and count as neither.
- If most scanned pixels are nearly black and few are bright, the slide is fluorescent, and tissue
  is brighter than the background.
- If most scanned pixels are nearly black but many are bright, the dark ones were never scanned
  either, but stored with noise.

Letters: N patches of a slide, n of them kept, R rows and C columns of the grid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.errors import PatchError
from ips.images import Image
from ips.images.colour import as_rgb
from ips.patches.image import ImagePatches
from ips.patches.source import Box, PatchSubset

Progress = Callable[[int, int], None]
"""Callback that receives the number of blocks done and the number of all blocks."""
Counts = npt.NDArray[np.int64]

MIN_SHARE = 0.01
"""Smallest share of a patch that must be tissue, as in the paper."""

# Pixels read at a time.
_BLOCK = 2**21
# At the default level a pixel is at most this many level-0 pixels wide, and a patch at least this
# many pixels.
_MAX_DOWNSAMPLE, _MIN_PATCH = 16, 16
# Otsu's method splits any histogram. Noise with a standard deviation of 10 gives two classes whose
# means are 16 grey values apart; the palest stained tissue and glass are some 25 apart. Dark
# background has less noise, and a common blue dye has a ninth of its brightness in grey.
_MIN_CONTRAST, _MIN_CONTRAST_FLUORESCENT = 16, 6
_NEARLY_BLACK = 31
# Glass is brighter than this; a fluorescent slide has a smaller share of such pixels.
_BRIGHT, _MAX_BRIGHT = 200, 0.1


@dataclass(frozen=True)
class Tissue:
    """The patches of a slide that contain tissue.

    Args:
        patches: all N patches of the slide.
        kept: ``(n,)`` indices of the patches with tissue, ascending.
        level: level of the slide at which tissue was searched.
        threshold: highest grey value of tissue, None if tissue and background cannot be separated.
        fluorescent: whether tissue is brighter than the threshold instead.
        min_share: smallest share of a patch that must be tissue.
        reason: why no patch was kept, None if any was.
    """

    patches: ImagePatches
    kept: Counts
    level: int
    threshold: int | None
    fluorescent: bool
    min_share: float
    reason: str | None

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
    *,
    level: int | None = None,
    min_share: float = MIN_SHARE,
    progress: Progress | None = None,
) -> Tissue:
    """Find the patches with tissue. A slide without tissue gives no patches and the reason.

    Args:
        patches: patches of a slide, at any resolution.
        level: level of the slide to search; :func:`tissue_level` by default.
        min_share: smallest share of a patch that must be tissue.
        progress: callback that receives the number of blocks done and the number of all blocks.
    """
    image = patches.image
    level = tissue_level(patches) if level is None else level
    image.tile_size(level)  # raises if there is no such level
    step, extent = image.level_downsamples[level], patches.patch_size * patches.downsample
    if extent < step:
        raise PatchError(
            f"{image.name}: a patch is {extent:g} px wide, and a pixel of level {level} "
            f"{step:g}: search for tissue at a finer level"
        )
    report = progress or (lambda done, total: None)
    split = _split(_histogram(image, level, lambda done, of: report(done, 2 * of)))
    kept, reason = np.empty(0, np.int64), split.reason
    if split.threshold is not None:
        share = _shares(patches, level, split.is_tissue, lambda done, of: report(of + done, 2 * of))
        kept = np.flatnonzero(share.reshape(-1) >= min_share).astype(np.int64)
        if not len(kept):
            side = "above" if split.fluorescent else "up to"
            reason = f"no patch has {min_share:.0%} of its area at grey {side} {split.threshold}"
    return Tissue(patches, kept, level, split.threshold, split.fluorescent, min_share, reason)


def _histogram(image: Image, level: int, progress: Progress) -> Counts:
    """Count the pixels of each grey value, ``(256,)``."""
    counts = np.zeros(256, np.int64)
    blocks = list(_blocks(image, level))
    for done, block in enumerate(blocks):
        counts += np.bincount(_grey(image, level, block).reshape(-1), minlength=256)
        progress(done + 1, len(blocks))
    return counts


@dataclass(frozen=True)
class _Split:
    """Otsu's threshold, or None and the reason why there is none."""

    threshold: int | None
    fluorescent: bool
    reason: str | None = None
    unscanned: int = 0  # highest grey value of pixels that were never scanned

    @property
    def is_tissue(self) -> npt.NDArray[np.bool_]:
        """Which grey values are tissue, ``(256,)``."""
        assert self.threshold is not None
        values = np.arange(256)
        if self.fluorescent:
            return values > self.threshold
        return (values > self.unscanned) & (values <= self.threshold)


def _split(histogram: Counts) -> _Split:
    from skimage.filters import threshold_otsu

    scanned, unscanned = histogram.copy(), 0
    scanned[0] = 0
    dark = bool(2 * scanned[: _NEARLY_BLACK + 1].sum() > scanned.sum())
    fluorescent = dark and bool(scanned[_BRIGHT + 1 :].sum() < _MAX_BRIGHT * scanned.sum())
    if fluorescent:
        scanned = histogram
    elif dark:
        unscanned = _NEARLY_BLACK
        scanned[: unscanned + 1] = 0
    shades = np.flatnonzero(scanned)
    if not len(shades):
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


def _shares(
    patches: ImagePatches, level: int, is_tissue: npt.NDArray[np.bool_], progress: Progress
) -> npt.NDArray[np.float64]:
    """Return the share of tissue pixels in each patch, ``(R, C)``.

    The patches are the crossings of the rows and columns of a grid, so a summed-area table of a
    block gives the tissue pixels of every patch that overlaps the block.
    """
    image = patches.image
    step, extent = image.level_downsamples[level], patches.patch_size * patches.downsample
    rows, columns = patches.grid.shape
    x, y = patches.coords[:columns, 0], patches.coords[::columns, 1]
    left, right = (np.rint(edge / step).astype(np.int64) for edge in (x, x + extent))  # (C,)
    top, bottom = (np.rint(edge / step).astype(np.int64) for edge in (y, y + extent))  # (R,)
    counts = np.zeros((rows, columns), np.int64)
    blocks = list(_blocks(image, level))
    for done, block in enumerate(blocks):
        u, v, w, h = block
        tissue = is_tissue[_grey(image, level, block)]
        sums = np.zeros((h + 1, w + 1), np.int32)
        np.cumsum(tissue, axis=0, out=sums[1:, 1:])
        np.cumsum(sums, axis=1, out=sums)
        c = np.flatnonzero((left < u + w) & (right > u))
        r = np.flatnonzero((top < v + h) & (bottom > v))
        x0, x1 = (np.clip(edge[c] - u, 0, w) for edge in (left, right))
        y0, y1 = (np.clip(edge[r] - v, 0, h) for edge in (top, bottom))
        inside = sums[np.ix_(y1, x1)] - sums[np.ix_(y0, x1)]
        inside += sums[np.ix_(y0, x0)] - sums[np.ix_(y1, x0)]
        counts[np.ix_(r, c)] += inside
        progress(done + 1, len(blocks))
    return counts / np.outer(bottom - top, right - left)


def _blocks(image: Image, level: int) -> Iterator[Box]:
    """Divide the scanned part of a level into blocks of whole tiles and at most ``_BLOCK`` pixels.

    A tile or strip that is larger makes a block of its own.
    """
    step = image.level_downsamples[level]
    width, height = image.level_dimensions[level]
    left, top, across, down = (round(side / step) for side in image.bounds)
    right, bottom = min(left + across, width), min(top + down, height)
    tile_width, tile_height = image.tile_size(level) or (width, 1)
    w = min(width, max(1, _BLOCK // tile_height // tile_width) * tile_width)
    h = max(1, _BLOCK // w // tile_height) * tile_height
    for y in range(top // h * h, bottom, h):
        for x in range(left // w * w, right, w):
            x0, y0 = max(x, left), max(y, top)
            yield x0, y0, min(x + w, right) - x0, min(y + h, bottom) - y0


def _grey(image: Image, level: int, block: Box) -> npt.NDArray[np.uint8]:
    """Read the grey values ``(h, w)`` of a block."""
    x, y, width, height = block
    step = image.level_downsamples[level]
    pixels = image.read_region((round(x * step), round(y * step)), level, (width, height))
    if image.channels == 1:
        return pixels[..., 0]
    return np.asarray(PILImage.fromarray(as_rgb(pixels)).convert("L"))
