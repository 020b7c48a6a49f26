"""A prediction with the attention of all patches, and everything that shows it.

::

    explanation.py   Explanation: a prediction with the attention of all patches
    maps.py          attention of every patch, and as a raster over the image
    export.py        all files of one explanation
    overlay.py       figure: the attention map over the image
    attention.py     figure: the selected patches and their classes over the image
    top_patches.py   figure: the patches of one image with the most attention
    gallery.py       figure: the patches of a data set with the most attention
    table.py         CSV of all patches
    geojson.py       patches as GeoJSON for QuPath
    map_tiff.py      the attention map as a pyramidal TIFF for slide viewers
    localisation.py  scores of an attention map against the true locations

    page.py, drawing.py, marks.py, colours.py  layout, shared drawing, positions, colours

Figures need matplotlib, which is imported only by the modules that draw them.
"""

from ips.explain.explanation import Explanation
from ips.explain.maps import AttentionMap, attention_map, percentiles

__all__ = ["AttentionMap", "Explanation", "attention_map", "percentiles"]
