"""An image, an array or a feature file as a bag of patches that can be read by index.

::

    source.py          PatchSource, its parts, patches in memory, and subsets of patches
    opening.py         open_patches opens any file
    image.py           patches of an image, on a regular grid
    joined.py          several images, or one at several magnifications, as one bag
    features.py        features of a stored file; layouts.py: the layouts of several tools;
                       hdf5.py: files, attributes and coordinates that can be trusted
    feature_writer.py  write features
    slide_finder.py    find the slide of a feature file
    crops.py           pixels of patches, also of features whose slide is known
    tissue.py          which patches of a slide contain tissue; artefacts.py: ink and blur;
                       tissue_file.py, coords_file.py: stored results of ours and other tools
    mask.py            which parts of an image count, at a low resolution
    filtered.py        patches with tissue, or inside and outside of outlines
    margins.py         how much of an overlapping patch its neighbours show, too
    thumbnail.py       a small picture of the whole image
    batching.py        read patches in the background, and pad several images to one tensor
"""

from ips.patches.batching import pad, prefetch, read_through
from ips.patches.crops import has_pixels, read_crops
from ips.patches.feature_writer import FeatureWriter, FileLayout
from ips.patches.features import FeatureBag, open_features
from ips.patches.image import Edge, Grid, ImagePatches
from ips.patches.joined import JoinedPatches
from ips.patches.opening import ImageLike, open_patches
from ips.patches.slide_finder import SlideFinder
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
    "FileLayout",
    "Grid",
    "ImageLike",
    "ImagePatches",
    "Indices",
    "JoinedPatches",
    "MemoryPatches",
    "Part",
    "PatchSource",
    "PatchSubset",
    "SlideFinder",
    "Thumbnail",
    "has_pixels",
    "in_memory",
    "open_features",
    "open_patches",
    "pad",
    "prefetch",
    "read_crops",
    "read_through",
    "sampled",
]
