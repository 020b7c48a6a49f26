"""Swedish traffic signs (Sect. 4.1): which speed limit does this photograph show, if any?

Photographs of roads by the Computer Vision Laboratory of Linköping University, in a folder:

    Set1/annotations.txt, Set1/*.jpg    to train on
    Set2/annotations.txt, Set2/*.jpg    to test on

A photograph is decoded, resized and, for training, augmented when its first patch is read. The
augmentation follows from the seed, the epoch and the photograph's number alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.data.augment import Augmentation, draw_augmentation
from ips.data.download import Progress, check_url, fetch, unpack
from ips.data.synthetic.digits import Split, check_split
from ips.errors import DataError, ImageError
from ips.images.array import WholeImage, as_pixels
from ips.images.image import Header, Pixels
from ips.patches.grid import Edge, Grid
from ips.patches.image import ImagePatches

WIDTH, HEIGHT = 1600, 1200

NAMES = ["no sign", "50", "70", "80"]
"""What the classes are called, by number."""

TASKS: dict[str, tuple[Literal["multiclass"], int]] = {"sign": ("multiclass", len(NAMES))}
"""Kind and number of classes of the label."""

HOME = "http://www.isy.liu.se/cvl/research/trafficSigns/swedishSignsSummer"
"""Where the data set was published."""

ANNOTATIONS_MD5 = {
    "Set1": "9106a905a86209c95dc9b51d12f520d6",
    "Set2": "09debbc67f6cd89c1e2a2688ad1d03ca",
}
"""Those of the archives are not published: they are checked by the checksums inside them."""

_SETS: dict[Split, str] = {"train": "Set1", "test": "Set2"}
_CLASSES = {"50_SIGN": 1, "70_SIGN": 2, "80_SIGN": 3}
_VISIBILITIES = ("VISIBLE", "BLURRED", "SIDE_ROAD", "OCCLUDED")  # the best first
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")

Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels."""


@dataclass(frozen=True)
class Sign:
    """One sign on a photograph.

    Args:
        name: such as ``70_SIGN``.
        visibility: VISIBLE, BLURRED, SIDE_ROAD or OCCLUDED; of signs that are no class, unchecked.
        box: in pixels of the file.
    """

    name: str
    visibility: str
    box: Box

    @property
    def rank(self) -> tuple[int, float]:
        """Of two signs the one with the smaller rank is seen better: visibility, then area."""
        left, top, right, bottom = self.box
        return _VISIBILITIES.index(self.visibility), -(right - left) * (bottom - top)


@dataclass(frozen=True)
class Photo:
    """One photograph of the data set.

    Args:
        path: of its file.
        label: its class, a number into `NAMES`.
        boxes: of its visible signs of this class, in pixels of the file, the largest first.
    """

    path: Path
    label: int
    boxes: tuple[Box, ...]


class SignImage(WholeImage):
    """A photograph in 1,600 x 1,200 px, decoded and augmented at the first read."""

    def __init__(self, path: Path, *, augmentation: Augmentation | None) -> None:
        super().__init__(path.name, Header(((WIDTH, HEIGHT),), channels=3, tiles=(None,)))
        self.path, self.augmentation = path, augmentation

    def _open(self) -> Pixels:
        with _opened(self.path) as stored:
            picture = stored.convert("RGB")
        picture = picture.resize((WIDTH, HEIGHT), PILImage.Resampling.BILINEAR)
        if self.augmentation is not None:
            picture = self.augmentation.apply(picture)
        return as_pixels(np.asarray(picture), self.name)


class TrafficSigns:
    """Photographs with a visible limit of 50, 70 or 80 km/h, or without any sign.

    Args:
        folder: where `download_traffic_signs` put them.
        split: Set1 is for training, Set2 for testing.
        patch_size: side of a patch in pixels of 1,600 x 1,200; 100 in the paper.
        stride: from patch to patch; 100 in the paper.
        edge: what happens to patches that reach beyond the image.
        seed: other augmentations for another seed.
        augment: jitter the colours and move the picture, differently in each epoch.
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
    ) -> None:
        check_split(split)
        if seed < 0:
            raise DataError(f"seed {seed} is negative: take 0 or more")
        Grid(WIDTH, HEIGHT, patch=patch_size, stride=stride, edge=edge)  # refused now, if at all
        self.photos = read_photos(Path(folder) / _SETS[split])
        missing = _missing(self.photos)
        if missing:
            raise DataError(
                f"{missing[0]} is missing, one of {len(missing)} of {len(self.photos)} images: "
                f"{_remedy(missing[0].parent)}"
            )
        self.patch_size, self.stride, self.edge = patch_size, stride, edge
        self.seed, self.augment = seed, augment
        # In shared memory, so that workers that outlive an epoch hear of the next one.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, index: int) -> tuple[ImagePatches, dict[str, Tensor]]:
        photo = self._photo(index)
        image = SignImage(photo.path, augmentation=self._augmentation(index))
        patches = ImagePatches(
            image, patch_size=self.patch_size, stride=self.stride, edge=self.edge
        )
        return patches, {"sign": torch.tensor(photo.label)}

    def set_epoch(self, epoch: int) -> None:
        """The augmentations of this epoch from now on."""
        self._epoch.fill_(epoch)

    def boxes(self, index: int) -> npt.NDArray[np.float64]:
        """Where the signs of the image's class are: ``(n, 4)``, none on an image without a sign.

        Left, top, right and bottom in pixels of 1,600 x 1,200, moved as the image is moved in the
        current epoch, possibly beyond its edge; the largest sign first.
        """
        photo = self._photo(index)
        with _opened(photo.path) as stored:
            scale = np.array([WIDTH, HEIGHT] * 2) / np.array(stored.size * 2)
        boxes: npt.NDArray[np.float64] = np.array(photo.boxes).reshape(-1, 4) * scale  # (n, 4)
        augmentation = self._augmentation(index)
        if augmentation is not None:
            boxes += np.array(augmentation.shift * 2)
        return boxes

    def _photo(self, index: int) -> Photo:
        # An IndexError, for it is what ends a loop over a sequence.
        if not 0 <= index < len(self):
            raise IndexError(f"traffic signs: there is no image {index} of {len(self)}")
        return self.photos[index]

    def _augmentation(self, index: int) -> Augmentation | None:
        if not self.augment:
            return None
        seeds = np.random.SeedSequence(self.seed, spawn_key=(int(self._epoch), index))
        return draw_augmentation(np.random.Generator(np.random.PCG64(seeds)))


def download_traffic_signs(
    folder: Path, *, mirrors: Sequence[str] = (), progress: Progress | None = None
) -> None:
    """Download and unpack what is missing of the data set in ``folder``.

    Args:
        folder: made where it does not exist. Its archives are not needed any more afterwards.
        mirrors: addresses of folders that hold ``Set1/annotations.txt``, ``Set1/Set1Part0.zip``
            and the same of Set2, tried in this order before `HOME`.
        progress: told of megabytes, then of files.
    """
    for mirror in mirrors:
        check_url(mirror)
    folder = Path(folder)
    homes = [home.rstrip("/") for home in (*mirrors, HOME)]
    for name in _SETS.values():
        annotations = f"{name}/annotations.txt"
        urls = [f"{home}/{annotations}" for home in homes]
        fetch(folder / annotations, urls, md5=ANNOTATIONS_MD5[name], progress=progress)
        photos = read_photos(folder / name)
        if not _missing(photos):
            continue
        archive = f"{name}/{name}Part0.zip"
        fetch(folder / archive, [f"{home}/{archive}" for home in homes], progress=progress)
        unpack(folder / archive, folder / name, progress=progress)
        missing = _missing(photos)
        if missing:
            raise DataError(
                f"{folder / archive} lacks {len(missing)} of the {len(photos)} images needed, such "
                f"as {missing[0].name}: delete it and download it from another mirror"
            )


def read_photos(folder: Path) -> list[Photo]:
    """The photographs of one set that belong to the data set, in the order of its annotations.

    These are the ones without any sign, and those whose best speed limit among 50, 70 and 80 km/h
    is visible: by visibility, then by area.
    """
    photos: list[Photo] = []
    for image, signs in read_annotations(folder / "annotations.txt"):
        limits = sorted((sign for sign in signs if sign.name in _CLASSES), key=lambda s: s.rank)
        if not signs:
            photos.append(Photo(folder / image, label=0, boxes=()))
        elif limits and limits[0].visibility == "VISIBLE":
            best = limits[0]
            boxes = [s.box for s in limits if (s.name, s.visibility) == (best.name, "VISIBLE")]
            photos.append(Photo(folder / image, label=_CLASSES[best.name], boxes=tuple(boxes)))
    if not photos:
        raise DataError(f"{folder / 'annotations.txt'} names no image: {_remedy(folder)}")
    return photos


def read_annotations(path: Path) -> list[tuple[str, list[Sign]]]:
    """The images of an annotation file with their signs, one image to a line.

    A line is ``IMAGE.jpg:SIGN;SIGN;`` and a sign ``VISIBILITY, right, bottom, left, top, TYPE,
    NAME``. An entry ``MISC_SIGNS`` stands for signs that are not told apart, and is passed over.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path} does not exist: {_remedy(path.parent)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} cannot be read ({error}): delete it, then {_remedy(path.parent)}"
        ) from None
    images: list[tuple[str, list[Sign]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        image, colon, entries = line.partition(":")
        try:
            if not colon or not image.strip():
                raise ValueError("expected IMAGE.jpg:SIGN;SIGN;")
            cells = [[cell.strip() for cell in entry.split(",")] for entry in entries.split(";")]
            signs = [_sign(c) for c in cells if c != [""] and c[0] != "MISC_SIGNS"]
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}: {error}: delete the file, then {_remedy(path.parent)}"
            ) from None
        images.append((image.strip(), signs))
    return images


def _sign(cells: Sequence[str]) -> Sign:
    if len(cells) < 7:
        raise ValueError(f"a sign of {len(cells)} fields instead of 7 ({', '.join(cells)})")
    visibility, name, box = cells[0], cells[6], cells[1:5]
    if name in _CLASSES and visibility not in _VISIBILITIES:
        raise ValueError(f"visibility {visibility!r}, expected one of {', '.join(_VISIBILITIES)}")
    right, bottom, left, top = map(_number, box)
    return Sign(name, visibility, (left, top, right, bottom))


def _number(cell: str) -> float:
    """``cell`` as a number, without what follows it: some end in a stray letter."""
    number = _NUMBER.match(cell)
    if number is None:
        raise ValueError(f"{cell!r} is not a coordinate")
    return float(number[0])


@contextmanager
def _opened(path: Path) -> Iterator[PILImage.Image]:
    try:
        with PILImage.open(path) as picture:
            yield picture
    except FileNotFoundError:
        raise ImageError(f"{path} is missing: {_remedy(path.parent)}") from None
    except Exception as error:  # decoders raise all manner of exceptions on damaged bytes
        raise ImageError(
            f"{path} is damaged ({error}): delete it, then {_remedy(path.parent)}"
        ) from error


def _missing(photos: Sequence[Photo]) -> list[Path]:
    return [photo.path for photo in photos if not photo.path.is_file()]


def _remedy(folder: Path) -> str:
    return f"download the data set with 'ips data traffic-signs {folder.parent}'"
