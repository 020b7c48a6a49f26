"""Patches drawn at random from many slides, of which few are open at a time.

Letters: b patches of a batch, n patches of a slide, C channels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.data.table import read_table
from ips.errors import DataError, ImageError, PatchError
from ips.files import list_files
from ips.images import is_image
from ips.images.tile_cache import CACHE_BYTES
from ips.patches import ImagePatches
from ips.slides.coords import NoTissueError

#: Bytes of decoded pixels that a process holds of the slides it has open, about.
OPEN_BYTES = 2**30
#: A patch shows nothing if none of its channels varies by so many grey levels.
BLANK_DEVIATION = 4.0
#: How many other places of a slide are looked at for a patch that shows something.
_TRIES = 32

Opener = Callable[[Path], ImagePatches]
Draws = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Slide:
    """A file to draw patches from.

    Args:
        path: of the file.
        count: n.
        held: bytes that are in memory while it is open, at most.
    """

    path: Path
    count: int
    held: int


@dataclass(frozen=True)
class Collection:
    """Slides to draw from.

    Args:
        slides: at least one.
        channels: C.
        patch_size: side of a patch in pixels.
        skipped: why others are not among them.
        skip_errors: whether a patch that cannot be read gives way to another of its slide.
    """

    slides: list[Slide]
    channels: int
    patch_size: int
    skipped: list[str]
    skip_errors: bool


def find_files(data: Sequence[Path]) -> list[Path]:
    """The files that are meant, each once: itself, those in a folder, the rows of a CSV.

    A CSV has a ``path`` column; of one with a ``split`` column the training rows are taken.
    """
    files: list[Path] = []
    for entry in data:
        if entry.is_dir():
            found = list_files([entry], accept=is_image)
            if not found:
                raise DataError(
                    f"{entry}: no image or slide in this folder, and folders in it are not looked "
                    "into: give the one that holds the files"
                )
        elif entry.suffix.lower() == ".csv":
            rows = read_table(entry, tasks=[])
            found = [row.path for row in rows if row.split in (None, "train")]
            if not found:
                raise DataError(f"{entry}: no row has 'train' in its column `split`")
        else:
            found = [entry]
        files += found
    return list(dict.fromkeys(files))


def collect(
    files: Sequence[Path],
    open_file: Opener,
    *,
    skip_errors: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> Collection:
    """Look at the header of every file; nothing of it stays in memory but a few numbers.

    Args:
        files: of :func:`find_files`.
        open_file: makes the patches of a file.
        skip_errors: leave out those that cannot be opened, as those without tissue always are; to
            know that, the first patch of each is read.
        progress: is called after every file.
    """
    slides: list[Slide] = []
    skipped: list[str] = []
    channels: dict[int, Path] = {}
    sizes: dict[int, Path] = {}
    for path in files:
        try:
            with open_file(path) as source:
                if skip_errors:
                    source.read([0])
                channels.setdefault(source.shape[0], path)
                sizes.setdefault(source.patch_size, path)
                slides.append(Slide(path, len(source), _held(source)))
        except (ImageError, PatchError) as error:
            if not skip_errors and not isinstance(error, NoTissueError):
                raise
            skipped.append(str(error))
        progress()
    if not slides:
        what = "has tissue and can be read" if skip_errors else "has tissue"
        raise DataError(f"none of {len(files)} slides {what}, such as {skipped[0]}")
    if len(channels) > 1:
        raise DataError(
            f"{channels[1]} is grey but {channels[3]} has colours: pre-train on one kind"
        )
    if len(sizes) > 1:
        (size, one), (other, another) = list(sizes.items())[:2]
        raise DataError(
            f"the places of {one} are of patches of {size} px, but those of {another} of {other}: "
            "find the tissue of all with the same size"
        )
    return Collection(slides, next(iter(channels)), next(iter(sizes)), skipped, skip_errors)


def draw(slides: Sequence[Slide], *, per_slide: int, seed: int, epoch: int) -> Draws:
    """The patches of an epoch, ``(draws, 2)`` as numbers of slide and patch, in random order.

    Of each slide up to ``per_slide`` different patches. Slides come in groups that may be open
    together, and the patches of a group are shuffled: up to 16 whole slides, or images of a
    gigabyte in all, are mixed.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(slides))
    ends = np.cumsum([slides[number].held for number in order])
    groups = -(-int(ends[-1]) // OPEN_BYTES)
    # by the middle of each slide's share, so that all groups are about equal
    middles = ends - np.array([slides[number].held for number in order]) / 2
    group = np.minimum((middles * groups / ends[-1]).astype(np.int64), groups - 1)
    drawn = []
    for now in range(groups):
        rows = []
        for number in order[group == now]:
            count = slides[number].count
            chosen = random.choice(count, min(count, per_slide), replace=False)
            rows.append(np.stack([np.full_like(chosen, number), chosen], axis=1))
        if rows:
            drawn.append(random.permutation(np.concatenate(rows)))
    return np.concatenate(drawn)


class Reader:
    """Reads the patches of an epoch by number, and keeps the slides of the last ones open.

    A worker gets a copy, and opens its own files.

    Args:
        slides: to read from.
        open_file: makes the patches of a file.
        draws: of :func:`draw`.
        seed: of what is read instead of blank patches.
        skip_blank: read another patch of the slide for one that is blank, and note that in
            ``draws``; where none of a few is better, blank it stays.
        skip_errors: also for one that cannot be read, unless none of a few can.
    """

    def __init__(
        self,
        slides: Sequence[Slide],
        open_file: Opener,
        draws: Draws,
        *,
        seed: int,
        skip_blank: bool,
        skip_errors: bool = False,
    ) -> None:
        self.slides, self.open_file = slides, open_file
        self.draws, self.seed = draws, seed
        self.skip_blank, self.skip_errors = skip_blank, skip_errors
        self._open: OrderedDict[int, ImagePatches] = OrderedDict()

    def __len__(self) -> int:
        return len(self.draws)

    def read(self, numbers: Sequence[int]) -> Tensor:
        """The patches with these numbers, ``(b, C, h, w)`` uint8."""
        return torch.stack([self._patch(number) for number in numbers])

    def close(self) -> None:
        """Let all files go."""
        while self._open:
            self._open.popitem()[1].close()

    def _patch(self, number: int) -> Tensor:
        slide, patch = self.draws[number].tolist()
        source = self._opened(slide)
        spare: tuple[int, Tensor] | None = None
        failure: ImageError | None = None
        for place in self._places(number, patch, len(source)):
            try:
                pixels = source.read([place])  # (1, C, h, w)
            except ImageError as error:
                if not self.skip_errors:
                    raise
                failure = failure or error
                continue
            shows = not self.skip_blank or not blank(pixels)
            if shows or spare is None:
                spare = place, pixels[0]
            if shows:
                break
        if spare is None:
            assert failure is not None
            raise failure
        self.draws[number, 1] = spare[0]
        return spare[1]

    def _places(self, number: int, patch: int, count: int) -> Iterator[int]:
        """A patch, and what may be read instead of it."""
        yield patch
        random = np.random.default_rng([self.seed, number])
        yield from random.integers(count, size=_TRIES).tolist()

    def _opened(self, number: int) -> ImagePatches:
        if number not in self._open:
            self._open[number] = self.open_file(self.slides[number].path)
        self._open.move_to_end(number)
        while len(self._open) > 1 and sum(self.slides[n].held for n in self._open) > OPEN_BYTES:
            self._open.popitem(last=False)[1].close()
        return self._open[number]


def blank(patches: Tensor) -> Tensor:
    """Which of ``(b, C, h, w)`` show nothing, ``(b,)``: one colour but for the scanner's noise."""
    deviation = patches.float().flatten(2).std(dim=2, correction=0)  # (b, C)
    return (deviation < BLANK_DEVIATION).all(dim=1)


def _held(source: ImagePatches) -> int:
    width, height = source.image.dimensions
    whole = source.image.decoded_whole
    return width * height * source.image.channels if whole else CACHE_BYTES
