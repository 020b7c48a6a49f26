"""The viewer: a page in the browser that shows images of any size with the model's attention.

::

    tiles.py        render tiles of an image and of its attention at any zoom
    images.py       find image files and their annotations, open each image only once
    answers.py      predictions as the page shows them, cached on disk
    texts.py        predictions and true labels in words
    library.py      the list of images, predicted in the background when asked for
    renderer.py     everything that the page shows of one image
    server.py       serve the page on this machine
    static/         HTML, CSS and JavaScript of the page
"""

from ips.errors import require

require("fastapi", "uvicorn", "xstatic")

from ips.viewer.images import find_images
from ips.viewer.library import Library
from ips.viewer.server import create_app, serve

__all__ = ["Library", "create_app", "find_images", "serve"]
