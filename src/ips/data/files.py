"""Files of ours: written so that others see all or nothing, read so that damage is told apart."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from uuid import uuid4

import numpy as np

from ips.errors import DataError

# Of any type: the signature of numpy's savez has no room for keywords that are all arrays.
Arrays = dict[str, Any]


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A stream whose bytes appear at ``path`` when the block ends well, and not at all otherwise.

    The bytes go to a temporary neighbour first, since a rename within a folder is atomic.
    """
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with part.open("xb") as stream:
            yield stream
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load_arrays(path: Path) -> Arrays:
    """The arrays of an ``.npz`` file; a ValueError tells that it is damaged."""
    try:
        # Opened here, since numpy itself leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (EOFError, RuntimeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error) or "the file ends too early") from error


def agree(path: Path, settings: dict[str, Any]) -> None:
    """Note in ``path`` what a folder's images are drawn with; a folder of others is an error."""
    if path.exists():
        try:
            found = json.loads(path.read_bytes())
        except ValueError:
            found = None
        if found != settings:
            raise DataError(
                f"{path.parent} holds images drawn with {found}, not with {settings}: give "
                "another folder"
            )
        return
    with whole_file(path) as stream:
        stream.write(json.dumps(settings).encode())


def feature(outline: Sequence[Sequence[float]], *, name: str, **properties: Any) -> dict[str, Any]:
    """An outline as GeoJSON that QuPath shows; its corners are full-resolution pixels."""
    return {
        "type": "Feature",
        # a polygon ends where it began
        "geometry": {"type": "Polygon", "coordinates": [[*outline, outline[0]]]},
        "properties": {
            "objectType": "annotation",
            "classification": {"name": name, "color": [200, 0, 0]},
            **properties,
        },
    }
