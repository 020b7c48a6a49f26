"""A prediction with the attention of all patches, and everything that shows it.

::

    explanation.py   Explanation: a prediction with the attention of all patches
    maps.py          attention of every patch, and as a raster over the image
    spread.py        how evenly attention is spread, and whether it is nearly uniform
    figures/         figures, which need matplotlib
    export.py        all files of one explanation, among them a CSV of all patches
    geojson.py       patches as GeoJSON for QuPath
    map_tiff.py      the attention map as a pyramidal TIFF for slide viewers
    marks.py         positions of boxes and numbers on a thumbnail
    colours.py       colours of classes
"""

from ips.explain.explanation import Explanation
from ips.explain.maps import AttentionMap, attention_map, percentiles

__all__ = ["AttentionMap", "Explanation", "attention_map", "percentiles"]
