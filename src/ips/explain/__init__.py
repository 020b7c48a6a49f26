"""Pictures of where a model looked, and of how it learnt.

::

    overview.py   the whole image, small
    attention.py  the patches that it kept, drawn over the image
    curves.py     loss and scores over the epochs
"""

from ips.explain.attention import draw_attention
from ips.explain.curves import draw_curves
from ips.explain.overview import Overview, overview

__all__ = ["Overview", "draw_attention", "draw_curves", "overview"]
