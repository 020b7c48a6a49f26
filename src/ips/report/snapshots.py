"""Snapshots of the attention over one image during training, and the file that stores them.

Letters: K selected patches of the image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ips.errors import RunError
from ips.explain.spread import Spread, spread
from ips.files import write_text
from ips.models import Prediction
from ips.patches import Coords
from ips.statistics import Floats


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The selected patches of one image and their attention after one epoch.

    Attributes:
        image: name of the image.
        epoch: number of the epoch, from 1.
        indices: ``(K,)`` indices of the patches.
        coords: ``(K, 2)`` top-left corners, x, y in full-resolution pixels.
        extent: side of a patch in full-resolution pixels; None where unknown.
        attention: ``(K,)`` attention of the patches; sums to 1.
    """

    image: str
    epoch: int
    indices: npt.NDArray[np.int64]
    coords: Coords
    extent: int | None
    attention: Floats

    def __post_init__(self) -> None:
        K = len(self.indices)
        shapes = self.indices.shape, self.coords.shape, self.attention.shape
        if not K or shapes != ((K,), (K, 2), (K,)):
            raise ValueError(f"epoch {self.epoch}: expected (K,), (K, 2) and (K,), got {shapes}")

    @classmethod
    def from_prediction(cls, prediction: Prediction, *, epoch: int) -> Snapshot:
        """The snapshot of a prediction after an epoch."""
        attention = prediction.attention.detach().cpu().double().numpy()
        indices = prediction.indices.cpu().numpy()
        return cls(prediction.name, epoch, indices, prediction.coords, prediction.extent, attention)

    @property
    def spread(self) -> Spread:
        """How evenly the attention is spread over the selected patches."""
        return spread(self.attention)

    @property
    def entropy(self) -> float:
        """Entropy of the attention in nats, from 0 (one patch has all of it) to ln K (equal)."""
        return self.spread.entropy


def append_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Add a line of JSON to ``path``, and drop later epochs, which a resumed run repeats.

    Snapshots of other images are dropped as well.
    """
    before = read_snapshots(path, image=snapshot.image)
    kept = [old for old in before if old.epoch < snapshot.epoch]
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(_as_dict(s), separators=(",", ":")) for s in [*kept, snapshot])
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_snapshots(path: Path, *, image: str) -> list[Snapshot]:
    """The snapshots of ``image`` in ``path``, by epoch; empty without the file."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    snapshots: list[Snapshot] = []
    for number, line in enumerate(lines, start=1):
        try:
            snapshots.append(_from_dict(json.loads(line)))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, json.JSONDecodeError) and number == len(lines):
                break  # incomplete: the computer stopped while the line was written
            raise RunError(
                f"{path}: line {number} is not the attention of an epoch: delete the file, and the "
                "figure starts with the next epoch"
            ) from error
    return [snapshot for snapshot in snapshots if snapshot.image == image]


def _as_dict(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "image": snapshot.image,
        "epoch": snapshot.epoch,
        "extent": snapshot.extent,
        "indices": snapshot.indices.tolist(),
        "coords": snapshot.coords.tolist(),
        "attention": [float(f"{a:.6g}") for a in snapshot.attention.tolist()],
    }


def _from_dict(values: dict[str, Any]) -> Snapshot:
    indices, coords = (np.array(values[key], dtype=np.int64) for key in ("indices", "coords"))
    attention = np.array(values["attention"], dtype=np.float64)
    image = str(values.get("image", ""))  # version 0.2.0 did not store it
    extent = values["extent"]
    if extent is not None and not (isinstance(extent, int) and 0 < extent < 2**31):
        raise ValueError("a side of a patch that is no number of pixels")
    return Snapshot(image, int(values["epoch"]), indices, coords, extent, attention)
