"""Turn the errors of decoders into one sentence about the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ips.errors import ImageError, because


class DamagedError(ImageError):
    """A file that could not be decoded, as opposed to an unsupported kind of image."""


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Raise an ImageError that names ``what`` if the block fails.

    Decoders raise many exceptions on damaged bytes (``struct.error``, ``SyntaxError``,
    ``zlib.error``, ...), hence the broad catch. Out of memory need not mean damage.
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
        reason = because(error, remedy="the file is damaged or incomplete, copy or export it again")
        raise DamagedError(f"{what} cannot be read {reason}") from error
