"""Read ``.npz`` files of arrays."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

# Values of any type, because numpy declares the keywords of savez as such.
Arrays = dict[str, Any]


def load_arrays(path: Path) -> Arrays:
    """Read the arrays of an ``.npz`` file; raise ValueError if it is damaged."""
    try:
        # numpy would leave a damaged file open, so it is opened here.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (EOFError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error) or "the file ends too early") from error
