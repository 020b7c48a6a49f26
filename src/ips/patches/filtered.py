"""Leave out patches: those without tissue, outside some regions, or inside others.

Letters: N patches of an image, n of them kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ips.annotations import read_outlines
from ips.errors import PatchError
from ips.patches.coords_file import (
    NoTissueError,
    check_slide,
    find_coords,
    read_coords,
    stored_size,
)
from ips.patches.image import ImagePatches
from ips.patches.joined import JoinedPatches
from ips.patches.mask import Mask, mask_of_outlines, mask_of_picture, mask_of_squares
from ips.patches.source import PatchSource, PatchSubset
from ips.patches.tissue import MIN_SHARE, tissue_patches
from ips.patches.tissue_file import is_tissue_file, load_tissue

OTSU = "otsu"
"""Name of the search for tissue, in place of a folder of stored masks."""

_OUTLINES = (".geojson", ".xml", ".json")
_PICTURES = (".png", ".tif", ".tiff")
_HALF = 0.5


@dataclass(frozen=True)
class Rule:
    """Keep a patch if a share of it is inside a mask, or with ``outside`` if it is not."""

    mask: Mask
    share: float
    outside: bool = False

    def keeps(self, patches: ImagePatches) -> npt.NDArray[np.bool_]:
        """Which patches are kept, ``(N,)``."""
        inside = self.mask.shares(patches) >= self.share
        return ~inside if self.outside else inside


class FilteredPatches(PatchSubset):
    """The patches that all rules keep.

    Args:
        source: all N patches of an image.
        rules: which to keep; a shifted grid is judged anew.
    """

    source: ImagePatches

    def __init__(self, source: ImagePatches, rules: tuple[Rule, ...]) -> None:
        kept = np.ones(len(source), bool)
        for rule in rules:
            kept &= rule.keeps(source)
        super().__init__(source, np.flatnonzero(kept).astype(np.int64))
        self.rules = rules

    def shifted(self, shift: tuple[float, float]) -> PatchSource:
        """The patches of a shifted grid; the source itself where none of them would be kept."""
        moved = FilteredPatches(self.source.shifted(shift), self.rules)
        return moved if len(moved) else self


class PatchFilter:
    """Which patches of images to keep. What is found once on a file is remembered.

    Args:
        tissue: ``otsu`` to search for tissue as `ips slides tissue` does, or a folder of the
            files that it, CLAM or TRIDENT wrote, or of masks as pictures; None for all patches.
        include: file or folder of outlines, of which patches must be at least half inside.
        exclude: file or folder of outlines, of which patches must be less than half inside.
    """

    def __init__(
        self, *, tissue: str | None = None, include: Path | None = None, exclude: Path | None = None
    ) -> None:
        self.tissue, self.include, self.exclude = tissue, include, exclude
        self._found: dict[tuple[str, int], tuple[Rule, ...]] = {}

    def __call__(self, source: PatchSource, file: str | os.PathLike[str] | None) -> PatchSource:
        """Leave out patches of ``source``, whose ``file`` is None if it is in memory."""
        if self.tissue is None and self.include is None and self.exclude is None:
            return source
        if isinstance(source, JoinedPatches):  # several magnifications
            return source.each(lambda one: self(one, file))
        if not isinstance(source, ImagePatches):
            raise PatchError(
                f"{source.name}: patches of stored features cannot be left out: leave out "
                "patches.tissue, patches.include and patches.exclude"
            )
        key = None if file is None else (os.fspath(file), source.extent)
        rules = (key and self._found.get(key)) or tuple(self._rules(source))
        if key is not None:
            self._found[key] = rules
        kept = FilteredPatches(source, rules)
        if not len(kept):
            raise NoTissueError(
                f"{source.name}: none of its {len(source):,} patches is kept by patches.tissue, "
                "patches.include and patches.exclude: leave it out, or change these"
            )
        return kept

    def _rules(self, patches: ImagePatches) -> Iterator[Rule]:
        if self.tissue == OTSU:
            found = tissue_patches(patches)
            if found.reason is not None:
                raise NoTissueError(f"{patches.name}: no tissue: {found.reason}: leave it out")
            assert found.mask is not None
            yield Rule(found.mask, MIN_SHARE)
        elif self.tissue is not None:
            yield _stored(Path(self.tissue), patches)
        if self.include is not None:
            inside = _outlined(self.include, patches)
            if inside is None:
                raise PatchError(
                    f"{self.include}: no outlines of {patches.name} (.geojson, .json or .xml with "
                    "its name): draw them, or leave out patches.include"
                )
            yield Rule(inside, _HALF)
        if self.exclude is not None and (mask := _outlined(self.exclude, patches)) is not None:
            yield Rule(mask, _HALF, outside=True)


def _stored(folder: Path, patches: ImagePatches) -> Rule:
    """The tissue that is stored for a slide."""
    image, stem = patches.image, Path(patches.name).stem
    if file := find_coords(folder, stem):
        if is_tissue_file(file):
            tissue = load_tissue(file, image)
            if tissue.reason is not None:
                raise NoTissueError(f"{patches.name}: no tissue: {tissue.reason}: leave it out")
            if tissue.mask is not None:
                return Rule(tissue.mask, tissue.settings.min_share)
        corners, attributes = read_coords(file)
        check_slide(image, attributes, file)
        size, downsample = stored_size(image, attributes, file) or (
            patches.patch_size,
            patches.downsample,
        )
        # more than half: neighbours may overlap by half
        return Rule(mask_of_squares(image, corners, size * downsample), _HALF + 1e-6)
    for picture in (folder / f"{stem}{suffix}" for suffix in _PICTURES):
        if picture.is_file() and picture.name != patches.name:  # not the image itself
            return Rule(mask_of_picture(image, picture), MIN_SHARE)
    raise PatchError(
        f"{folder}: no tissue of {patches.name} ({stem}_patches.h5, or a mask {stem}.png): run "
        f"ips slides tissue on it, or set patches.tissue={OTSU}"
    )


def _outlined(place: Path, patches: ImagePatches) -> Mask | None:
    """The inside of the outlines of an image; None if it has no file."""
    if not place.exists():
        raise PatchError(f"{place} does not exist: give a file or folder of outlines")
    files = [place / f"{Path(patches.name).stem}{suffix}" for suffix in _OUTLINES]
    file = place if place.is_file() else next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    left, top, _, _ = patches.image.bounds
    outlines = read_outlines(file, origin=(left, top))
    return mask_of_outlines(patches.image, outlines, patches.extent)
