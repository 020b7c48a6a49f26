"""Pictures of where a model looked, and of how it learnt.

::

    marks.py      boxes and labels on a thumbnail
    attention.py  the patches that it kept, drawn over the image
    evolution.py  the same for one image, epoch by epoch
    gallery.py    the patches with the highest attention of a data set
    curves.py     loss and scores over the epochs

    maps.py         the attention of every patch, and the map that it makes
    overlay.py      that map over the image
    top_patches.py  the patches of one image with the most attention
    table.py        every patch in a CSV
    geojson.py      patches for QuPath
    map_tiff.py     the map for viewers of slides
    explanation.py  a prediction that has all of this
"""

from ips.explain.attention import draw_attention
from ips.explain.curves import draw_curves
from ips.explain.evolution import Moment, append_moment, draw_evolution, read_moments
from ips.explain.explanation import Explanation
from ips.explain.gallery import Highest, HighPatch, HighPlace, draw_gallery, read_highest
from ips.explain.geojson import patch_features
from ips.explain.map_tiff import write_map_tiff
from ips.explain.maps import (
    AttentionMap,
    attention_from_logits,
    attention_from_prediction,
    attention_map,
    image_area,
    percentiles,
)
from ips.explain.overlay import draw_overlay, overlay_png
from ips.explain.table import write_patches
from ips.explain.top_patches import draw_top_patches

__all__ = [
    "AttentionMap",
    "Explanation",
    "HighPatch",
    "HighPlace",
    "Highest",
    "Moment",
    "append_moment",
    "attention_from_logits",
    "attention_from_prediction",
    "attention_map",
    "draw_attention",
    "draw_curves",
    "draw_evolution",
    "draw_gallery",
    "draw_overlay",
    "draw_top_patches",
    "image_area",
    "overlay_png",
    "patch_features",
    "percentiles",
    "read_highest",
    "read_moments",
    "write_map_tiff",
    "write_patches",
]
