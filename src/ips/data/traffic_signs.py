"""Swedish traffic signs (Sect. 4.1): which speed limit does a photograph show, if any?

Photographs of roads by the Computer Vision Laboratory of Linköping University, in a folder:

    Set1/annotations.txt, Set1/*.jpg    for training
    Set2/annotations.txt, Set2/*.jpg    for testing

A photograph is decoded, resized and, for training, augmented when its first patch is read. The
augmentation depends only on the seed, the epoch and the index of the photograph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as PILImage
from PIL import ImageEnhance
from torch import Tensor

from ips.data.download import Progress, check_url, fetch, unpack
from ips.data.output import locks_output
from ips.data.regions import Region
from ips.data.seeded import SeededDataset, seeded_generator
from ips.data.split import Split, check_split, stratified_split
from ips.data.traffic_sign_annotations import NAMES as NAMES
from ips.data.traffic_sign_annotations import NO_SIGN as NO_SIGN
from ips.data.traffic_sign_annotations import (
    Photo,
    download_hint,
    read_annotations,
    read_photos,
)
from ips.errors import DataError, ImageError, because
from ips.images.array import WholeImage, as_pixels
from ips.images.image import Pixels
from ips.patches.image import Edge, Grid, ImagePatches

WIDTH, HEIGHT = 1600, 1200
JITTER = 0.1
MAX_SHIFT = 100

TASKS: dict[str, tuple[Literal["multiclass"], int]] = {"sign": ("multiclass", len(NAMES))}
"""Kind and number of classes of the task."""

HOME = "http://www.isy.liu.se/cvl/research/trafficSigns/swedishSignsSummer"
"""Original address of the data set."""

# The archives have no published checksum; unpacking checks the checksum of every member.
ANNOTATIONS_MD5 = {
    "Set1": "9106a905a86209c95dc9b51d12f520d6",
    "Set2": "09debbc67f6cd89c1e2a2688ad1d03ca",
}
_SETS: dict[Split, str] = {"train": "Set1", "validation": "Set1", "test": "Set2"}

IMAGES = {"Set1": 747, "Set2": 684}
"""Number of images of each set in the paper."""


@dataclass(frozen=True)
class Augmentation:
    """Colour changes as in torchvision's ``ColorJitter``, then a translation.

    Args:
        brightness, contrast, saturation: factors, 1 for no change.
        hue: rotation as a fraction of the colour circle, 0 for no change.
        order: order of these four changes, numbered as above.
        shift: translation to the right and down in pixels; the gap is black.
    """

    brightness: float
    contrast: float
    saturation: float
    hue: float
    order: tuple[int, ...]
    shift: tuple[int, int]

    def apply(self, picture: PILImage.Image) -> PILImage.Image:
        """Augmented RGB image of the same size."""
        enhancers = ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color
        factors = self.brightness, self.contrast, self.saturation
        for step in self.order:
            if step < 3:
                picture = enhancers[step](picture).enhance(factors[step])
            else:
                picture = _rotate_hue(picture, self.hue)
        moved = PILImage.new("RGB", picture.size)
        moved.paste(picture, self.shift)
        return moved


def draw_augmentation(rng: np.random.Generator) -> Augmentation:
    """Random factors within 0.1 of 1, hue within 0.1 of 0, any order, shifts up to 100 px."""
    # Uniform numbers only: they are the least likely to differ between versions of numpy.
    brightness, contrast, saturation, hue = (JITTER * (2 * rng.random(4) - 1)).tolist()
    x, y = rng.integers(-MAX_SHIFT, MAX_SHIFT, size=2, endpoint=True).tolist()
    return Augmentation(
        brightness=1 + brightness,
        contrast=1 + contrast,
        saturation=1 + saturation,
        hue=hue,
        order=tuple(np.argsort(rng.random(4)).tolist()),
        shift=(x, y),
    )


def _rotate_hue(picture: PILImage.Image, turn: float) -> PILImage.Image:
    hue, saturation, value = picture.convert("HSV").split()
    steps = int(turn * 255)
    turned = hue.point([(level + steps) % 256 for level in range(256)])
    return PILImage.merge("HSV", (turned, saturation, value)).convert("RGB")


class SignImage(WholeImage):
    """A photograph resized to 1,600 x 1,200 px, decoded and augmented at the first read."""

    path: Path

    def __init__(self, path: Path, *, augmentation: Augmentation | None) -> None:
        super().__init__(path.name, size=(WIDTH, HEIGHT), channels=3)
        self.path, self.augmentation = path, augmentation

    def _open(self) -> Pixels:
        with _open_photo(self.path) as stored:
            picture = stored.convert("RGB")
        picture = picture.resize((WIDTH, HEIGHT), PILImage.Resampling.BILINEAR)
        if self.augmentation is not None:
            picture = self.augmentation.apply(picture)
        return as_pixels(np.asarray(picture), self.name)


class TrafficSigns(SeededDataset[tuple[ImagePatches, dict[str, Tensor]]]):
    """Photographs with a visible limit of 50, 70 or 80 km/h, or without any sign.

    Args:
        folder: output folder of `download_traffic_signs`.
        split: Set1 is for training and validation, Set2 for testing.
        patch_size: side of a patch in pixels of the resized image; 100 in the paper.
        stride: distance between patches in pixels; 100 in the paper.
        edge: whether to drop, pad or fit patches that cross the border of the image.
        seed: random seed of the augmentation and of the choice of validation images.
        augment: whether to jitter the colours and shift the image, differently in each epoch.
        exclude: file names of images to leave out. The paper left out one image, which shows the
            face of a pedestrian, without naming it.
        validation: share of the images of Set1 that is held out for validation, the same of every
            class. The paper holds out none.
    """

    def __init__(
        self,
        folder: Path,
        *,
        split: Split = "train",
        patch_size: int = 100,
        stride: int = 100,
        edge: Edge = "drop",
        seed: int = 0,
        augment: bool = False,
        exclude: Sequence[str] = (),
        validation: float = 0.0,
    ) -> None:
        check_split(split)
        if split == "validation" and not validation:
            raise DataError(
                "validation=0: there are no validation images, take a share such as 0.1"
            )
        Grid(WIDTH, HEIGHT, patch=patch_size, stride=stride, edge=edge)  # report errors early
        photos = read_photos(Path(folder) / _SETS[split])
        _check_excluded(exclude, Path(folder))
        photos = [photo for photo in photos if photo.path.name not in exclude]
        if validation and split != "test":
            labels = [photo.label for photo in photos]
            train, held_out = stratified_split(labels, test=validation, seed=seed)
            photos = [photos[i] for i in (train if split == "train" else held_out)]
        self.photos = photos
        super().__init__("traffic-signs", count=len(self.photos), seed=seed, fresh=augment)
        if missing := _missing(self.photos):
            raise DataError(
                f"{len(missing)} of {len(self.photos)} images are missing, such as {missing[0]}: "
                f"{download_hint(missing[0].parent)}"
            )
        self.patch_size, self.stride, self.edge = patch_size, stride, edge

    def __getitem__(self, index: int) -> tuple[ImagePatches, dict[str, Tensor]]:
        self.check_index(index)
        photo = self.photos[index]
        image = SignImage(photo.path, augmentation=self._augmentation(index))
        patches = ImagePatches(
            image, patch_size=self.patch_size, stride=self.stride, edge=self.edge
        )
        return patches, {"sign": torch.tensor(photo.label)}

    def boxes(self, index: int) -> npt.NDArray[np.float64]:
        """Boxes ``(n, 4)`` of the signs of the image's class; n is 0 for the class "no sign".

        Left, top, right and bottom in pixels of the resized image, shifted by the augmentation of
        the current epoch, possibly beyond the border; the largest sign comes first.
        """
        self.check_index(index)
        photo = self.photos[index]
        with _open_photo(photo.path) as stored:
            scale = np.array([WIDTH, HEIGHT] * 2) / np.array(stored.size * 2)
        boxes: npt.NDArray[np.float64] = np.array(photo.boxes).reshape(-1, 4) * scale  # (n, 4)
        augmentation = self._augmentation(index)
        if augmentation is not None:
            boxes += np.array(augmentation.shift * 2)
        return boxes

    def objects(self, index: int, task: str) -> list[Region]:
        """Regions of `boxes`."""
        return [Region.box(*box) for box in self.boxes(index).tolist()]

    def _augmentation(self, index: int) -> Augmentation | None:
        if not self.fresh:
            return None
        return draw_augmentation(seeded_generator(self.seed, int(self._epoch), index))


@locks_output
def download_traffic_signs(
    folder: Path, *, mirrors: Sequence[str] = (), progress: Progress | None = None
) -> None:
    """Download and unpack the missing files of the data set.

    Args:
        folder: output folder, created if missing. Its archives can be deleted afterwards.
        mirrors: addresses of folders with ``Set1/annotations.txt``, ``Set1/Set1Part0.zip`` and the
            same for Set2, tried in this order before `HOME`.
        progress: callback that receives megabytes of a download, then files of an archive.
    """
    for mirror in mirrors:
        check_url(mirror)
    folder = Path(folder)
    homes = [home.rstrip("/") for home in (*mirrors, HOME)]

    def get(name: str, md5: str | None = None) -> Path:
        urls = [f"{home}/{name}" for home in homes]
        fetch(folder / name, urls, md5=md5, progress=progress)
        return folder / name

    for name in IMAGES:
        get(f"{name}/annotations.txt", ANNOTATIONS_MD5[name])
        photos = read_photos(folder / name)
        if not _missing(photos):
            continue
        archive = get(f"{name}/{name}Part0.zip")
        unpack(archive, folder / name, progress=progress)
        if missing := _missing(photos):
            raise DataError(
                f"{archive} lacks {len(missing)} of the {len(photos)} images needed, such as "
                f"{missing[0].name}: delete it and download it from another mirror"
            )


def count_message(folder: Path) -> str | None:
    """One sentence if a folder has other numbers of images than the paper, else None."""
    counts = [len(read_photos(Path(folder) / name)) for name in IMAGES]
    if counts == list(IMAGES.values()):
        return None
    found, expected = (" + ".join(map(str, numbers)) for numbers in (counts, IMAGES.values()))
    return (
        f"the paper has {expected} images, this folder {found}: scores may differ from it (the "
        "paper left out one photograph with a face, which data.exclude can do)"
    )


def _check_excluded(names: Sequence[str], folder: Path) -> None:
    if not names:
        return
    annotations = [folder / name / "annotations.txt" for name in IMAGES]
    known = {image for path in annotations for image, _ in read_annotations(path)}
    if unknown := [name for name in names if name not in known]:
        raise DataError(
            f"exclude: {unknown[0]!r} is in neither annotations.txt of {folder}: give file names "
            "as they are there, without a folder"
        )


@contextmanager
def _open_photo(path: Path) -> Iterator[PILImage.Image]:
    hint = download_hint(path.parent)
    try:
        with PILImage.open(path) as picture:
            yield picture
    except FileNotFoundError:
        raise ImageError(f"{path} is missing: {hint}") from None
    except Exception as error:  # decoders raise any type of exception on damaged files
        reason = because(error, remedy=f"it is damaged, delete it, then {hint}")
        raise ImageError(f"{path} cannot be read {reason}") from error


def _missing(photos: Sequence[Photo]) -> list[Path]:
    return [photo.path for photo in photos if not photo.path.is_file()]
