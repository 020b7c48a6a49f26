"""Open a file once and note all that can be wrong with it, alone or beside the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import torch

from ips.advice.problems import Report
from ips.advice.survey import FileFacts, read_facts
from ips.config import PatchesConfig
from ips.errors import listed
from ips.nn.embedding import blank
from ips.patches import JoinedPatches, PatchSource, PatchSubset
from ips.training.data import open_source

_SAMPLE = 48  # patches, to estimate the share of blank ones
_LOOK = 16  # side of the thumbnail that images are compared by
_ALIKE, _CONTRAST = 2.0, 8.0  # grey levels
_UNLIKE_OTHERS = 0.15  # distance of two images by their distance from the mean image
_ENOUGH = 10  # images for a mean
_MOST_COMPARED = 5000
_WILDLY = 16  # area by the usual area


@dataclass(frozen=True)
class Examined:
    """One file, opened as the config says.

    Attributes:
        facts: what its header says.
        shape: shape of a patch.
        patches: N.
        left_out: share of all patches that a filter leaves out.
        blank: share of patches of a single colour.
        look: tiny grey picture of an image, ``(256,)``; None for features.
        size: width and height of the whole image; None if unknown.
    """

    facts: FileFacts
    shape: tuple[int, ...]
    patches: int
    left_out: float
    blank: float
    look: npt.NDArray[np.float32] | None
    size: tuple[int, int] | None


def examine(path: Path, patches: PatchesConfig) -> Examined:
    """Open a file, read some of it, and close it; raise if it cannot be used."""
    with open_source(path, patches) as source:
        source.check()
        facts = read_facts(path, white=patches.white)
        if facts.kind == "features":
            return Examined(facts, source.shape, len(source), 0.0, 0.0, None, None)
        some = torch.linspace(0, len(source) - 1, min(len(source), _SAMPLE)).long()
        share = float(blank(source.read(some)).float().mean())
        size = source.parts[0].size
        left_out = 1 - len(source) / _before_filter(source)
        return Examined(facts, source.shape, len(source), left_out, share, _look(source), size)


def _before_filter(source: PatchSource) -> int:
    """Number of patches before a filter left some out."""
    if isinstance(source, JoinedPatches):
        return sum(_before_filter(part) for part in source.sources)
    return len(source.source) if isinstance(source, PatchSubset) else len(source)


def _look(source: PatchSource) -> npt.NDArray[np.float32]:
    """The image averaged to 16 x 16 grey values."""
    from PIL import Image

    picture = Image.fromarray(source.parts[0].thumbnail(4 * _LOOK).pixels).convert("L")
    small = picture.resize((_LOOK, _LOOK), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32).ravel()


def compare(files: Mapping[str, Examined], patches: PatchesConfig, report: Report) -> None:
    """Report what differs between the files: channels, bit depth, orientation and size."""
    _compare_channels(files, patches, report)
    images = {name: file.facts for name, file in files.items() if file.facts.kind != "features"}
    if deep := [name for name, facts in images.items() if facts.bits > 8]:
        report.add(
            "note" if len(deep) == len(images) else "warning",
            f"{listed(deep)}: {images[deep[0]].bits} bits per channel, which are scaled so that "
            "the largest possible value is white: set patches.white if they look too dark",
        )
    if turned := [name for name, facts in images.items() if facts.orientation > 1]:
        report.add(
            "note",
            f"{listed(turned)}: stored on its side, and turned upright as its EXIF data says: "
            "other programs may show it differently, so check coordinates that you have",
        )
    areas = {name: facts.width * facts.height for name, facts in images.items()}
    typical = median(areas.values()) if areas else 0
    for name, area in areas.items():
        if area > _WILDLY * typical or area * _WILDLY < typical:
            facts = images[name]
            report.add(
                "warning",
                f"{name}: {facts.width} x {facts.height} px, while the median image has "
                f"{typical / 1e6:.2f} megapixels: check that it belongs to the data",
            )


def _compare_channels(
    files: Mapping[str, Examined], patches: PatchesConfig, report: Report
) -> None:
    """Report files with another number of channels or features than most: converted, or errors."""
    counts = Counter(file.facts.channels for file in files.values())
    usual, _ = counts.most_common(1)[0]
    other = [name for name, file in files.items() if file.facts.channels != usual]
    if not other:
        return
    if any(file.facts.kind == "features" for file in files.values()):
        report.add(
            "error",
            *(
                f"{name}: {files[name].facts.channels} features per patch, but most files have "
                f"{usual}: store them with the same encoder, or leave it out"
                for name in other
            ),
        )
    elif patches.channels in ("rgb", "grey") or (not patches.channels and set(counts) == {1, 3}):
        count = files[other[0]].facts.channels
        report.add(
            "warning",
            f"{listed(other)}: {count} channel{'s' * (count > 1)}, most files have {usual}: they "
            "are converted (patches.channels), so check that colour does not give away the class",
        )
    else:
        report.add(
            "error",
            *(
                f"{name}: {files[name].facts.channels} channels, but most files have {usual}: set "
                "patches.channels: rgb to convert all files, or leave it out"
                for name in other
            ),
        )


def look_alikes(names: Sequence[str], files: Mapping[str, Examined]) -> list[tuple[str, str]]:
    """Pairs of images that look the same, such as copies in another format."""
    seen = [(name, files[name].look) for name in names if name in files]
    known = [(name, look) for name, look in seen if look is not None and look.std() > _CONTRAST]
    if not 1 < len(known) <= _MOST_COMPARED:
        return []
    looks = np.stack([look for _, look in known])
    # Pages of text are all alike: two are the same only if they share what sets them apart.
    common = looks.mean(axis=0) if len(looks) >= _ENOUGH else np.zeros(looks.shape[1])
    distance = np.abs(looks - common).mean(axis=1)
    pairs = []
    for i in range(len(known) - 1):
        difference = np.abs(looks[i + 1 :] - looks[i]).mean(axis=1)
        same = difference < np.minimum(_ALIKE, _UNLIKE_OTHERS * distance[i + 1 :])
        pairs += [(known[i][0], known[i + 1 + int(j)][0]) for j in np.flatnonzero(same)]
    return pairs
