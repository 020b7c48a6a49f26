"""The patches of a slide whose features are wanted: all of a grid, or those at stored places.

Places are read from the files of ``ips slides tissue``, CLAM and TRIDENT: ``coords`` ``(n, 2)``,
top-left corners in level-0 pixels, with or without a note of the patches' size.
Letters: n patches at stored places.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ips.errors import PatchError
from ips.images import Image, downsample_for, open_image
from ips.images.resolution import TOLERANCE
from ips.patches import Coords, ImagePatches

_SIZE = 256  # the paper's


class NoTissueError(PatchError):
    """A slide on which nothing was found that is worth looking at."""


class PatchesAt(ImagePatches):
    """Patches of an image at given places, on a grid or not.

    Args:
        image: to read from.
        coords: ``(n, 2)`` top-left corners as x, y in level-0 pixels.
        patch_size: side of a patch in pixels at the reading resolution.
        downsample: level-0 pixels per pixel of a patch.
    """

    def __init__(self, image: Image, coords: Coords, *, patch_size: int, downsample: float) -> None:
        super().__init__(image, patch_size=patch_size, downsample=downsample, edge="pad")
        self.coords = coords

    def __len__(self) -> int:
        return len(self.coords)


@dataclass(frozen=True)
class Resolution:
    """How patches are cut, where they are not stored with their size; see ``ips.open_patches``."""

    patch_size: int | None = None
    level: int | None = None
    mpp: float | None = None
    magnification: float | None = None

    def downsample(self, image: Image) -> float:
        """Level-0 pixels per pixel that is read."""
        return downsample_for(
            image, level=self.level, mpp=self.mpp, magnification=self.magnification
        )

    @property
    def is_given(self) -> bool:
        """Whether the resolution, and not the size alone, was asked for."""
        return any(asked is not None for asked in (self.level, self.mpp, self.magnification))


def slide_patches(
    path: str | Path, *, resolution: Resolution, places: str | Path | None = None
) -> ImagePatches:
    """The patches of a slide.

    Args:
        path: the slide.
        resolution: of 256 px at level 0 where it says nothing.
        places: a folder with a file of places for the slide, instead of the whole grid. Where that
            notes the size of patches, ``resolution`` may be left out, and must not contradict it.
    """
    path = Path(path)
    image = open_image(path)
    size = resolution.patch_size or _SIZE
    if places is None:
        return ImagePatches(image, patch_size=size, downsample=resolution.downsample(image))
    file = _places_file(Path(places), path.stem)
    coords, notes = _read_places(file)
    if not len(coords):
        reason = notes.get("reason", f"{file.name} holds no places")
        raise NoTissueError(f"{path.name}: no tissue: {reason}")
    if coords.min() < 0 or (coords >= image.dimensions).any():
        width, height = image.dimensions
        raise PatchError(
            f"{file}: a place lies outside {path.name}, which has {width} x {height} px: it is "
            "about another slide, or its coordinates are not in level-0 pixels"
        )
    _check_slide(image, notes, file)
    noted = _noted_size(image, notes)
    if noted is None:
        downsample = resolution.downsample(image)
        return PatchesAt(image, coords, patch_size=size, downsample=downsample)
    _check_agreement(image, resolution, noted, file)
    return PatchesAt(image, coords, patch_size=noted[0], downsample=noted[1])


def _places_file(folder: Path, stem: str) -> Path:
    """CLAM's name or TRIDENT's, in the folder or in the ``patches`` of one that either filled."""
    for place in (folder, folder / "patches"):
        for name in (f"{stem}.h5", f"{stem}_patches.h5"):
            if (place / name).is_file():
                return place / name
    raise PatchError(
        f"{folder}: no {stem}.h5 with the places of this slide: run ips slides tissue on it first"
    )


def _read_places(file: Path) -> tuple[Coords, dict[str, Any]]:
    """Corners, and what the file notes of them."""
    try:
        with h5py.File(file, "r") as stored:
            coords = np.asarray(stored["coords"][()])
            notes = dict(stored["coords"].attrs)
            if "indices" in stored and "reason" in stored["indices"].attrs:
                notes["reason"] = stored["indices"].attrs["reason"]
    except (OSError, KeyError, RuntimeError) as error:
        raise PatchError(f"{file}: no readable file of places ({error}): make it again") from error
    if coords.size and (coords.ndim != 2 or coords.shape[1] != 2):
        raise PatchError(f"{file}: coords is {coords.shape}, expected (n, 2) as x, y")
    return np.rint(coords.reshape(-1, 2)).astype(np.int64), notes


def _check_slide(image: Image, notes: dict[str, Any], file: Path) -> None:
    """Slides of two folders may have the same name."""
    if not {"level0_width", "level0_height"} <= notes.keys():
        return
    noted = int(notes["level0_width"]), int(notes["level0_height"])
    if noted != image.dimensions:
        width, height = image.dimensions
        raise PatchError(
            f"{file}: places of a slide of {noted[0]} x {noted[1]} px, but {image.name} has "
            f"{width} x {height}: it is about another slide of this name: find the tissue of this "
            "one again"
        )


def _noted_size(image: Image, notes: dict[str, Any]) -> tuple[int, float] | None:
    """Side of a patch in its own pixels, and level-0 pixels per pixel of it, where noted."""
    if "patch_size" not in notes:
        return None
    size = int(notes["patch_size"])
    if "patch_downsample" in notes:
        return size, float(notes["patch_downsample"])
    if "patch_size_level0" in notes:
        return size, float(notes["patch_size_level0"]) / size
    if "patch_level" in notes:
        return size, downsample_for(image, level=int(notes["patch_level"]))
    return None


def _check_agreement(
    image: Image, resolution: Resolution, noted: tuple[int, float], file: Path
) -> None:
    size, downsample = noted
    same_size = resolution.patch_size in (None, size)
    asked = resolution.downsample(image) if resolution.is_given else downsample
    if not same_size or abs(asked / downsample - 1) > TOLERANCE:
        raise PatchError(
            f"{file}: places of patches of {size} px, each {downsample:g} level-0 pixels wide, but "
            f"{resolution.patch_size or size} px of {asked:g} were asked for: leave that out, or "
            "find the tissue again"
        )
