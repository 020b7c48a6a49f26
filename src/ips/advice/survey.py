"""What the files of a data set are: their kind, size and channels, from their headers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
from rich.progress import Progress

from ips.advice.listing import is_features
from ips.errors import IPSError
from ips.files import split_address
from ips.images import open_image
from ips.patches import ImagePatches, open_features
from ips.patches.thumbnail import shrink_image
from ips.patches.tissue import NEARLY_ALL, TissueSettings, tissue_patches
from ips.training.checks import each_file

_LOOKED_AT, _SMALL = 5, 128  # images, and pixels of their longer side
_SEARCHED, _ACROSS = 2, 64  # slides beside the typical one, and patches along their longer side
_FEWEST = 0.02  # share of patches with tissue

Kind = Literal["images", "slides", "features"]


@dataclass(frozen=True)
class FileFacts:
    """What the header of a file says.

    Attributes:
        kind: images, slides (pyramids, read piece by piece) or features.
        width, height: of the image, upright; 0 of a feature file.
        channels: of a pixel, or features of a patch.
        patches: patches of a feature file, otherwise 0.
        mpp: micrometres per pixel; None if unknown.
        downsamples: of the levels of a pyramid; 1 for the full resolution.
        bits: bits per channel.
        orientation: EXIF orientation, 1 if it is upright as it is stored.
    """

    kind: Kind
    width: int
    height: int
    channels: int
    patches: int = 0
    mpp: float | None = None
    downsamples: tuple[float, ...] = (1.0,)
    bits: int = 8
    orientation: int = 1


def read_facts(path: Path, *, white: float | None = None) -> FileFacts:
    """Read the header of an image, slide or feature file.

    Args:
        white: see `ips.images.open_image`.
    """
    if is_features(split_address(path)[0]):
        bag = open_features(path)
        return FileFacts("features", 0, 0, bag.shape[0], patches=len(bag))
    image = open_image(path, white=white)
    _, _, width, height = image.bounds
    return FileFacts(
        kind="slides" if image.level_count > 1 else "images",
        width=width,
        height=height,
        channels=image.channels,
        mpp=sum(image.mpp) / 2 if image.mpp else None,
        downsamples=image.level_downsamples,
        bits=image.bits,
        orientation=image.orientation,
    )


@dataclass(frozen=True)
class Survey:
    """The files of a data set.

    Attributes:
        facts: facts of each file that can be read.
        unreadable: reason for each file that cannot.
        documents: whether images are mostly white, like scanned documents.
        tissue: share of the patches of slides that have tissue; None if that is unknown, or if
            nearly all or nearly none have.
    """

    facts: dict[Path, FileFacts]
    unreadable: dict[Path, str]
    documents: bool = False
    tissue: float | None = None

    @property
    def kind(self) -> Kind:
        """Kind of most files."""
        return Counter(facts.kind for facts in self.facts.values()).most_common(1)[0][0]

    @property
    def side(self) -> int:
        """Median of the shorter sides of the images."""
        return round(median(min(f.width, f.height) for f in self.facts.values()))

    @property
    def typical(self) -> Path:
        """The file whose size is the median."""

        def size(path: Path) -> int:
            facts = self.facts[path]
            return facts.width * facts.height or facts.patches

        ordered = sorted(self.facts, key=lambda path: (size(path), path))
        return ordered[len(ordered) // 2]

    @property
    def channels(self) -> list[int]:
        """All numbers of channels, or of features, the most frequent first."""
        counts = Counter(facts.channels for facts in self.facts.values())
        return [channels for channels, _ in counts.most_common()]


def survey(paths: Sequence[Path], progress: Progress) -> Survey:
    """Read the headers of files, in parallel.

    If there are images and feature files, those of the rarer kind count as unreadable.
    """
    results = dict(zip(paths, each_file(paths, read_facts, progress), strict=True))
    facts = {path: found for path, found in results.items() if not isinstance(found, IPSError)}
    bad = {path: str(found) for path, found in results.items() if isinstance(found, IPSError)}
    features = [path for path, found in facts.items() if found.kind == "features"]
    images = [path for path in facts if path not in features]
    for path in min(features, images, key=len):
        bad[path] = f"{path.name} is of another kind than most files: make a table of each kind"
        del facts[path]
    usual = images[:: max(len(images) // _LOOKED_AT, 1)][:_LOOKED_AT]
    found = Survey(facts, bad, documents=_are_white([path for path in usual if path in facts]))
    return replace(found, tissue=_tissue(found, usual[:_SEARCHED])) if facts else found


def _tissue(found: Survey, some: Sequence[Path]) -> float | None:
    """The usual share of patches with tissue, if there are slides of a known resolution."""
    shares = []
    for path in (found.typical, *some):
        facts = found.facts.get(path)
        if facts is None or facts.kind != "slides" or facts.mpp is None:
            continue
        with suppress(IPSError), open_image(path) as image:
            side = max(64, max(image.dimensions) // _ACROSS)
            level = image.get_best_level_for_downsample(side / 16)
            patches = ImagePatches(image, patch_size=side, edge="pad")
            kept = tissue_patches(patches, TissueSettings(level)).kept
            shares.append(len(kept) / len(patches))
    usable = found.kind == "slides" and len(shares) > 0 and shares[0] > 0
    share = median(shares) if usable else 0.0
    return share if _FEWEST <= share < NEARLY_ALL else None


def _are_white(paths: Sequence[Path]) -> bool:
    """Whether more than half of most images is white or light grey."""
    shares = []
    for path in paths:
        with suppress(IPSError), open_image(path) as image:
            pixels = shrink_image(image, _SMALL).pixels.astype(np.int16)
            darkest, brightest = pixels.min(axis=2), pixels.max(axis=2)
            shares.append(float(((darkest > 170) & (brightest - darkest < 40)).mean()))
    return bool(shares) and median(shares) > 0.5
