"""Random patches from many slides, of which only a few are open at a time.

Letters: b patches of a batch, n patches of a slide, C channels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ips.data.cells import is_table
from ips.data.table import read_table
from ips.errors import DataError, ImageError, PatchError
from ips.files import list_files
from ips.images import Channels, is_image
from ips.images.tile_cache import CACHE_BYTES
from ips.patches import ImagePatches
from ips.patches.coords_file import NoTissueError

#: Approximate limit of the decoded pixels of open slides per process, in bytes.
OPEN_BYTES = 2**30
#: A patch is blank if the standard deviation of every channel is below this number of grey levels.
BLANK_DEVIATION = 4.0
#: Maximum number of other patches that are tried in place of a blank one.
_TRIES = 32

Draws = npt.NDArray[np.int64]


class Opener(Protocol):
    """Function that opens the patches of a file, such as `ips.slides.coords.slide_patches`."""

    def __call__(self, path: Path, *, channels: Channels = ...) -> ImagePatches: ...


@dataclass(frozen=True)
class Slide:
    """A file to draw patches from."""

    path: Path
    count: int  # n
    memory: int  # maximum number of bytes in memory while it is open


@dataclass(frozen=True)
class Collection:
    """Slides to draw patches from.

    Attributes:
        slides: at least one slide.
        open_file: opens the patches of a file.
        channels: C.
        patch_size: side of a patch in pixels.
        skipped: error messages of the slides that were skipped.
        skip_errors: replace a patch that cannot be read by another one of its slide.
    """

    slides: list[Slide]
    open_file: Opener
    channels: int
    patch_size: int
    skipped: list[str]
    skip_errors: bool


def find_files(data: Sequence[Path]) -> list[Path]:
    """The given files, the images in given folders, and the paths in given CSVs, each once.

    A CSV has a ``path`` column. If it has a ``split`` column, only training rows are used.
    """
    files: list[Path] = []
    for entry in data:
        if is_table(entry) and not entry.is_dir():
            rows = read_table(entry, tasks=[])
            found = [row.path for row in rows if row.split in (None, "train")]
            problem = "no row has 'train' in its column `split`"
        else:
            found = list_files([entry], accept=is_image)
            problem = (
                "no image or slide in this folder, and its subfolders are not searched: give the "
                "folder that holds the files"
            )
        if not found:
            raise DataError(f"{entry}: {problem}")
        files += found
    return list(dict.fromkeys(files))


def collect(
    files: Sequence[Path],
    open_file: Opener,
    *,
    skip_errors: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> Collection:
    """Read the header of every file; slides without tissue are skipped.

    If some images are grey and some in colour, all become RGB.

    Args:
        skip_errors: also skip files that cannot be opened, or whose first patch cannot be read.
        progress: callback that is called after every file.
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
                slides.append(Slide(path, len(source), _memory(source)))
        except (ImageError, PatchError) as error:
            if not skip_errors and not isinstance(error, NoTissueError):
                raise
            skipped.append(str(error))
        progress()
    if not slides:
        what = "has tissue and can be read" if skip_errors else "has tissue"
        raise DataError(f"none of {len(files)} slides {what}, such as {skipped[0]}")
    if set(channels) == {1, 3}:
        open_file, channels = partial(open_file, channels="rgb"), {3: channels[3]}
    if unusual := sorted(set(channels) - {1, 3}):
        raise DataError(
            f"{channels[unusual[0]]} has {unusual[0]} channels, but pretraining takes grey and RGB "
            "images: use --channels rgb for the first three channels"
        )
    if len(sizes) > 1:
        (size, one), (other, another) = list(sizes.items())[:2]
        raise DataError(
            f"the patches of {one} have {size} px, but those of {another} have {other}: find the "
            "tissue of all slides with the same patch size"
        )
    (channel_count,), (size,) = channels, sizes
    return Collection(slides, open_file, channel_count, size, skipped, skip_errors)


def draw(slides: Sequence[Slide], *, per_slide: int, seed: int, epoch: int) -> Draws:
    """Draw the patches of an epoch: ``(draws, 2)`` slide and patch numbers in random order.

    Up to ``per_slide`` different patches are drawn from each slide. Slides are split at random
    into groups that can be open together (up to 16 slides, or images of 1 GB in total), and the
    patches of a group are shuffled. Consecutive patches form a batch, so a batch mixes the slides
    of one group, and of the next one where a group ends. The groups differ from epoch to epoch.

    The paper (Appendix D.6) samples 270,000 patches at random, about 1,000 per slide. Read as one
    sample of all patches, a batch mixes any slides, and a slide counts by its number of patches.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(slides))
    memory = np.array([slides[number].memory for number in order])
    ends = np.cumsum(memory)
    groups = -(-int(ends[-1]) // OPEN_BYTES)
    # The middle of a slide decides its group, so that all groups have about the same size.
    middles = ends - memory / 2
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
    """Reads the patches of an epoch by number, and keeps the last slides open.

    A worker process gets a copy, which opens its own files.

    Args:
        collection: slides to read from. Unreadable patches are replaced like blank ones, if it has
            ``skip_errors``.
        draws: patches of :func:`draw`; updated when a patch is replaced.
        seed: random seed of the replacements.
        skip_blank: replace a blank patch by another one of its slide, if one of a few is not blank.
    """

    def __init__(
        self, collection: Collection, draws: Draws, *, seed: int, skip_blank: bool
    ) -> None:
        self.collection, self.draws = collection, draws
        self.seed, self.skip_blank = seed, skip_blank
        self._open: OrderedDict[int, ImagePatches] = OrderedDict()

    def __len__(self) -> int:
        return len(self.draws)

    def read(self, numbers: Sequence[int]) -> Tensor:
        """The patches with these numbers, ``(b, C, h, w)`` uint8."""
        return torch.stack([self._patch(number) for number in numbers])

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _patch(self, number: int) -> Tensor:
        slide, patch = self.draws[number].tolist()
        source = self._opened(slide)
        found: tuple[int, Tensor] | None = None
        failure: ImageError | None = None
        random = np.random.default_rng([self.seed, number])
        for candidate in (patch, *random.integers(len(source), size=_TRIES).tolist()):
            try:
                pixels = source.read([candidate])  # (1, C, h, w)
            except ImageError as error:
                if not self.collection.skip_errors:
                    raise
                failure = failure or error
                continue
            good = not self.skip_blank or not is_blank(pixels)
            if good or found is None:
                found = candidate, pixels[0]
            if good:
                break
        if found is None:
            assert failure is not None
            raise failure
        self.draws[number, 1] = found[0]
        return found[1]

    def _opened(self, number: int) -> ImagePatches:
        slides = self.collection.slides
        if number not in self._open:
            self._open[number] = self.collection.open_file(slides[number].path)
        self._open.move_to_end(number)
        while len(self._open) > 1 and sum(slides[n].memory for n in self._open) > OPEN_BYTES:
            self._open.popitem(last=False)[1].close()
        return self._open[number]


def is_blank(patches: Tensor) -> Tensor:
    """Whether each patch of ``(b, C, h, w)`` has one colour, up to scanner noise: ``(b,)``."""
    deviation = patches.float().flatten(2).std(dim=2, correction=0)  # (b, C)
    return (deviation < BLANK_DEVIATION).all(dim=1)


def _memory(source: ImagePatches) -> int:
    width, height = source.image.dimensions
    whole = source.image.decoded_whole
    return width * height * source.image.channels if whole else CACHE_BYTES
