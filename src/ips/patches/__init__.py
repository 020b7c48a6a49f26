"""An image, or a stored feature file, as a bag of patches that can be read by index."""

from ips.patches.batch import pad
from ips.patches.feature_writer import FeatureWriter
from ips.patches.features import FeatureBag, open_features
from ips.patches.grid import Edge, Grid
from ips.patches.image import ImagePatches
from ips.patches.opening import open_patches
from ips.patches.prefetch import prefetch
from ips.patches.source import Coords, Indices, MemoryPatches, Part, PatchSource, in_memory
from ips.patches.subset import PatchSubset, sampled
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
