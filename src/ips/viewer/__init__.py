"""The page in the browser: walk through images of any size with the model's attention on them.

::

    tiles.py        squares of an image, and of the attention over it, at any zoom
    annotations.py  what people drew on an image: GeoJSON and ASAP's XML
    answers.py      what the model says of an image, kept on disk
    library.py      the images that were given, looked at in the background
    showing.py      tiles, patches and words of the image on the page
    server.py       the page on loopback
    static/         what the browser gets
"""

from ips.errors import require

require("fastapi", "uvicorn", "xstatic")

from ips.viewer.library import Library, find_images
from ips.viewer.server import create_app, serve

__all__ = ["Library", "create_app", "find_images", "serve"]
