"""Figures of explanations; they need matplotlib.

::

    attention.py    the selected patches and their classes over the image
    overlay.py      the attention map over the image
    top_patches.py  the patches of one image with the most attention
    gallery.py      the patches of a data set with the most attention

    page.py, drawing.py  layout of a page, and what several figures draw
"""

from ips.errors import require

require("matplotlib")
