"""An image, an array or a feature file as a bag of patches that can be read by index.

::

    source.py          PatchSource, its parts, and patches in memory
    opening.py         open_patches opens any file
    grid.py            positions of patches on a regular grid
    image.py           patches of an image
    features.py        features of a stored file; layouts.py: the layouts of several tools
    feature_writer.py  write features
    subset.py          some patches of another source
    tissue.py          which patches of a slide contain tissue
    thumbnail.py       a small picture of the whole image
    prefetch.py        read patches in the background
    batch.py           patches of several images in one tensor
"""

from ips.patches.batching import pad, prefetch
from ips.patches.feature_writer import FeatureWriter
from ips.patches.features import FeatureBag, open_features
from ips.patches.grid import Edge, Grid
from ips.patches.image import ImagePatches
from ips.patches.opening import open_patches
from ips.patches.source import (
    Coords,
    Indices,
    MemoryPatches,
    Part,
    PatchSource,
    PatchSubset,
    in_memory,
    sampled,
)
from ips.patches.thumbnail import Thumbnail

__all__ = [
    "Coords",
    "Edge",
    "FeatureBag",
    "FeatureWriter",
    "Grid",
    "ImagePatches",
    "Indices",
    "MemoryPatches",
    "Part",
    "PatchSource",
    "PatchSubset",
    "Thumbnail",
    "in_memory",
    "open_features",
    "open_patches",
    "pad",
    "prefetch",
    "sampled",
]
