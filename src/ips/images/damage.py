"""Whatever a decoder throws at damaged bytes becomes one sentence about the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ips.errors import ImageError


class DamagedError(ImageError):
    """Bytes that a decoder gave up on, as opposed to a kind of image that is refused."""


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Report any failure inside as ``what`` that could not be read.

    Decoders raise all manner of exceptions on damaged bytes (``struct.error``, ``SyntaxError``,
    ``zlib.error``, ...), hence the broad catch. Running out of memory need not be damage.
    """
    try:
        yield
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(
            f"{what} does not fit into memory: convert it to a tiled TIFF, or copy it again if it "
            "should be small"
        ) from error
    except Exception as error:
        raise DamagedError(
            f"{what} cannot be read ({str(error) or type(error).__name__}): "
            "the file is damaged or incomplete, copy or export it again"
        ) from error
