"""Pictures of where a model looked, and of how it learnt.

::

    overview.py   the whole image, small
    attention.py  the patches that it kept, drawn over the image
    evolution.py  the same for one image, epoch by epoch
    gallery.py    the patches with the highest attention of a data set
    curves.py     loss and scores over the epochs
"""

from ips.explain.attention import draw_attention
from ips.explain.curves import draw_curves
from ips.explain.evolution import Moment, append_moment, draw_evolution, read_moments
from ips.explain.gallery import Highest, HighPatch, HighPlace, draw_gallery, read_highest
from ips.explain.overview import Overview, overview

__all__ = [
    "HighPatch",
    "HighPlace",
    "Highest",
    "Moment",
    "Overview",
    "append_moment",
    "draw_attention",
    "draw_curves",
    "draw_evolution",
    "draw_gallery",
    "overview",
    "read_highest",
    "read_moments",
]
