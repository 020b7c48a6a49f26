"""An image, or a stored feature file, as a bag of patches that can be read by index."""

from ips.patches.batch import pad
from ips.patches.grid import Edge, Grid
from ips.patches.prefetch import prefetch
from ips.patches.source import Coords, Indices, MemoryPatches, PatchSource

__all__ = ["Coords", "Edge", "Grid", "Indices", "MemoryPatches", "PatchSource", "pad", "prefetch"]
