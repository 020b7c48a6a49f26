"""Which patches of a slide hold tissue: Otsu's threshold on its grey values (Appendix D.6).

The slide is read a block of tiles at a time, once for the histogram and once to count the tissue
in each patch, at a coarse level where it has one. Tissue is darker than the glass. Pixels that are
wholly black were never scanned and count as neither. Where most of what is left is nearly black
too, and little of it bright, the slide is fluorescent, and tissue is what is brighter; with glass
in it, what is nearly black was never scanned either, and was stored with some noise.
Letters: N patches of a slide, n of them kept, R rows and C columns of the grid.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import h5py
import numpy as np
import numpy.typing as npt
from PIL import Image as PILImage

from ips.errors import PatchError
from ips.images import Image
from ips.patches.image import ImagePatches
from ips.patches.subset import PatchSubset

Progress = Callable[[int, int], None]
"""Called with the number of blocks done and of all blocks."""
Counts = npt.NDArray[np.int64]
Box = tuple[int, int, int, int]  # x, y, width, height in pixels of a level

MIN_SHARE = 0.01
"""A patch is kept when this much of its area is tissue; the paper's."""

FORMAT = "ips-tissue"

# Pixels read at a time.
_BLOCK = 2**21
# The coarsest level looked at by default has pixels this many level-0 pixels wide, and patches that
# are still this many of its pixels wide.
_WIDEST, _NARROWEST = 16, 16
# Otsu's method splits any histogram. Noise of a standard deviation of 10 gives two classes that lie
# 16 shades of grey apart, the palest stained tissue and the glass some 25. Darkness has less noise,
# and the blue of a common dye is a ninth of its brightness in grey.
_MIN_CONTRAST, _MIN_CONTRAST_FLUORESCENT = 16, 6
_NEARLY_BLACK = 31
# Glass is brighter than this. Of a fluorescent slide less than this share is.
_BRIGHT, _MAX_BRIGHT = 200, 0.1


@dataclass(frozen=True)
class Tissue:
    """The patches of a slide that hold tissue.

    Args:
        patches: all N of the slide.
        kept: ``(n,)`` numbers of those with tissue, ascending.
        level: of the slide at which tissue was looked for.
        threshold: grey values up to this one are tissue; None where nothing stands out.
        fluorescent: whether tissue is what is brighter than the threshold instead.
        min_share: of a patch's area that must be tissue.
        reason: why nothing was kept, None where something was.
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
        """The patches kept, as a source of their own."""
        return PatchSubset(self.patches, self.kept)


def tissue_level(patches: ImagePatches) -> int:
    """The level to look for tissue at: coarse for speed, with enough pixels in each patch.

    The coarsest one whose pixels are at most 16 level-0 pixels wide and of which a patch has at
    least 16 x 16; level 0 where there is none.
    """
    extent = patches.patch_size * patches.downsample
    return patches.image.get_best_level_for_downsample(min(_WIDEST, extent / _NARROWEST))


def tissue_patches(
    patches: ImagePatches,
    *,
    level: int | None = None,
    min_share: float = MIN_SHARE,
    progress: Progress | None = None,
) -> Tissue:
    """Find the patches that hold tissue; a slide without any gives none, and the reason.

    Args:
        patches: of a slide, at any resolution.
        level: of the slide at which to look; :func:`tissue_level` by default.
        min_share: of a patch's area that must be tissue for it to be kept.
        progress: is told how far it is.
    """
    image = patches.image
    level = tissue_level(patches) if level is None else level
    image.tile_size(level)  # checks the level
    step, extent = image.level_downsamples[level], patches.patch_size * patches.downsample
    if extent < step:
        raise PatchError(
            f"{image.name}: a patch is {extent:g} px wide, and a pixel of level {level} "
            f"{step:g}: look for tissue at a finer level"
        )
    told = progress or _nothing
    split = _split(_histogram(image, level, lambda done, of: told(done, 2 * of)))
    kept, reason = np.empty(0, np.int64), split.reason
    if split.threshold is not None:
        share = _shares(patches, level, split.is_tissue, lambda done, of: told(of + done, 2 * of))
        kept = np.flatnonzero(share.reshape(-1) >= min_share).astype(np.int64)
        if not len(kept):
            side = "above" if split.fluorescent else "up to"
            reason = f"no patch has {min_share:.0%} of its area at grey {side} {split.threshold}"
    return Tissue(patches, kept, level, split.threshold, split.fluorescent, min_share, reason)


def save_tissue(path: str | Path, tissue: Tissue) -> None:
    """Write what was found as an HDF5 file that appears when it is whole.

    ``coords`` ``(n, 2)`` are the corners of the patches kept in level-0 pixels, with the attributes
    that TRIDENT notes on it and, where patches are read from a level as they are, those of CLAM.
    ``indices`` ``(n,)`` are their numbers in the grid.
    """
    path = Path(path)
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.attrs.update(format=FORMAT, version=1)
        coords = file.create_dataset("coords", data=tissue.patches.coords[tissue.kept])
        coords.attrs.update(_geometry(tissue.patches))
        indices = file.create_dataset("indices", data=tissue.kept)
        indices.attrs.update(
            level=tissue.level, min_share=tissue.min_share, fluorescent=tissue.fluorescent
        )
        if tissue.threshold is not None:
            indices.attrs["threshold"] = tissue.threshold
        if tissue.reason is not None:
            indices.attrs["reason"] = tissue.reason
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid4().hex[:8]}.part")
    try:
        part.write_bytes(stream.getbuffer())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load_tissue(path: str | Path, image: Image) -> Tissue:
    """What :func:`save_tissue` wrote about a slide, which it checks that ``image`` is."""
    path = Path(path)
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise PatchError(f"{path} was not written by ips slides tissue: give one that was")
            geometry, found = dict(file["coords"].attrs), dict(file["indices"].attrs)
            kept: Counts = file["indices"][:]
            size = int(geometry["level0_width"]), int(geometry["level0_height"])
            patches = ImagePatches(
                image,
                patch_size=int(geometry["patch_size"]),
                stride=int(geometry["stride"]),
                downsample=float(geometry["patch_downsample"]),
                edge=geometry["edge"],
            )
            level, min_share = int(found["level"]), float(found["min_share"])
            fluorescent = bool(found["fluorescent"])
    except FileNotFoundError as error:
        raise PatchError(f"{path} does not exist: run ips slides tissue") from error
    except (OSError, KeyError, RuntimeError, ValueError) as error:
        raise PatchError(
            f"{path} is damaged ({error}): delete it and run ips slides tissue again"
        ) from error
    if size != image.dimensions:
        raise PatchError(
            f"{path} is about a slide of {size[0]} x {size[1]} px, but {image.name} has "
            f"{image.dimensions[0]} x {image.dimensions[1]}: delete it and run ips slides tissue "
            "again"
        )
    threshold = int(found["threshold"]) if "threshold" in found else None
    reason = found.get("reason")
    return Tissue(patches, kept, level, threshold, fluorescent, min_share, reason)


def _geometry(patches: ImagePatches) -> dict[str, int | float | str]:
    """Attributes of ``coords``: TRIDENT's, CLAM's where there is a level to name, and our own."""
    image, grid = patches.image, patches.grid
    width, height = image.dimensions
    found: dict[str, int | float | str] = {
        "name": Path(image.name).stem,
        "patch_size": patches.patch_size,
        "patch_size_level0": patches.extent,
        "overlap": grid.patch - grid.stride,
        "level0_width": width,
        "level0_height": height,
        "patch_downsample": patches.downsample,
        "stride": grid.stride,
        "edge": grid.edge,
        "unit": "px",
    }
    if patches.downsample in image.level_downsamples:
        found["patch_level"] = image.level_downsamples.index(patches.downsample)
    # The custom of the field where a slide does not say: 10 µm per pixel are 1x.
    magnification = image.magnification or (10 / (sum(image.mpp) / 2) if image.mpp else None)
    if magnification is not None:
        found["level0_magnification"] = magnification
        found["target_magnification"] = magnification / patches.downsample
    if image.mpp is not None:
        found["mpp"] = sum(image.mpp) / 2
    return found


def _histogram(image: Image, level: int, progress: Progress) -> Counts:
    """How many pixels have each grey value, ``(256,)``."""
    counts = np.zeros(256, np.int64)
    blocks = list(_blocks(image, level))
    for done, block in enumerate(blocks):
        counts += np.bincount(_grey(image, level, block).reshape(-1), minlength=256)
        progress(done + 1, len(blocks))
    return counts


@dataclass(frozen=True)
class _Split:
    """Otsu's threshold, or None and the reason why it would mean nothing."""

    threshold: int | None
    fluorescent: bool
    reason: str | None = None
    unscanned: int = 0  # grey values up to this one are neither tissue nor glass

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
    """How much of each patch's area has the grey values of tissue, ``(R, C)``.

    Patches of a grid are the crossings of its rows and columns, so the tissue in all patches that a
    block touches comes from the corners of one running sum over the block.
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
    """The scanned part of a level in pieces of whole tiles, of at most ``_BLOCK`` pixels each.

    A single tile or strip may be larger, and is then read alone.
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
    """The grey values ``(h, w)`` of a block."""
    x, y, width, height = block
    step = image.level_downsamples[level]
    pixels = image.read_region((round(x * step), round(y * step)), level, (width, height))
    if image.channels == 1:
        return pixels[..., 0]
    return np.asarray(PILImage.fromarray(pixels).convert("L"))


def _nothing(done: int, total: int) -> None:
    pass
