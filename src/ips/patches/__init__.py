"""An image, or a stored feature file, as a bag of patches that can be read by index."""

from ips.patches.batch import pad
from ips.patches.feature_writer import FeatureWriter
from ips.patches.features import FeatureBag, open_features
from ips.patches.grid import Edge, Grid
from ips.patches.image import ImagePatches
from ips.patches.opening import open_patches
from ips.patches.prefetch import prefetch
from ips.patches.source import Coords, Indices, MemoryPatches, PatchSource, in_memory, release
from ips.patches.subset import PatchSubset, sampled

__all__ = [
    "Coords",
    "Edge",
    "FeatureBag",
    "FeatureWriter",
    "Grid",
    "ImagePatches",
    "Indices",
    "MemoryPatches",
    "PatchSource",
    "PatchSubset",
    "in_memory",
    "open_features",
    "open_patches",
    "pad",
    "prefetch",
    "release",
    "sampled",
]
