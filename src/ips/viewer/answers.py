"""Predictions with their attention maps, as the page shows them, cached on disk.

Letters: N patches of an image, K kept, T tasks, C classes.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes
from torch import Tensor

from ips.explain import Explanation, attention_map
from ips.explain.spread import Spread, spread
from ips.files import atomic_write, fingerprint
from ips.predictor import Predictor

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_VERSION = 4
_MAX_CELLS = 2**20  # of an attention map

# Errors of reading an answer: the file is missing or damaged.
UNREADABLE = (OSError, SafetensorError, KeyError, ValueError)


@dataclass(frozen=True)
class Answer:
    """What the page shows of a prediction.

    Attributes:
        patches: N.
        extent: side of a patch in full-resolution pixels.
        probabilities: ``(C,)`` per task, in the model's order.
        maps: ``(T + 1, rows, columns)`` attention per task, and its mean; NaN where there is no
            patch, 0 where patches were skipped.
        cell: side of a cell of the maps in full-resolution pixels.
        offset: x, y of the maps' top-left corner.
        kept: ``(K, 2)`` top-left corners of the kept patches, most important first.
        attention: ``(T + 1, K)`` attention of the kept patches; each row sums to 1.
        ratios: ``(T + 1, K)`` their share of the attention to all patches, as a multiple of an
            even share.
        spreads: how evenly the attention is spread over all patches, per task and for the mean.
        classes: ``(K,)`` classes of the kept patches, None without a patch-level head.
    """

    patches: int
    extent: int
    probabilities: list[Floats]
    maps: Floats
    cell: float
    offset: tuple[int, int]
    kept: Integers
    attention: Floats
    ratios: Floats
    spreads: list[Spread]
    classes: Integers | None

    @classmethod
    def from_explanation(cls, explanation: Explanation) -> Answer:
        """Reduce an explanation to what the page shows."""
        rows = [*explanation.all_attention.values(), explanation.mean_attention]
        maps = [attention_map(explanation.source, row, max_cells=_MAX_CELLS) for row in rows]
        kept = [_array(attention) for attention in explanation.task_attention.values()]
        spreads, indices = [spread(row) for row in rows], explanation.indices.cpu().numpy()
        ratios = [row[indices] * s.patches for row, s in zip(rows, spreads, strict=True)]
        scores, extent = explanation.patch_scores, explanation.extent
        assert extent is not None  # the patches of an image have one
        return cls(
            patches=explanation.patches,
            extent=extent,
            probabilities=[_array(p) for p in explanation.probabilities.values()],
            maps=np.stack([m.values for m in maps]).astype(np.float32),
            cell=maps[0].cell,
            offset=maps[0].offset,
            kept=explanation.coords,
            attention=np.stack([*kept, np.mean(kept, axis=0)]),
            ratios=np.stack(ratios).astype(np.float32),
            spreads=spreads,
            classes=None if scores is None else scores.argmax(axis=1),
        )

    def save(self, path: Path) -> None:
        arrays = {"maps": self.maps, "attention": self.attention, "kept": self.kept}
        arrays |= {"ratios": self.ratios, "spreads": np.array([astuple(s) for s in self.spreads])}
        arrays |= {f"probabilities.{i}": row for i, row in enumerate(self.probabilities)}
        if self.classes is not None:
            arrays["classes"] = self.classes
        left, top = self.offset
        numbers = {"patches": self.patches, "extent": self.extent, "cell": self.cell}
        metadata = {name: str(n) for name, n in (numbers | {"left": left, "top": top}).items()}
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        metadata["crc32"] = _checksum_of_numbers(metadata)
        metadata |= {f"crc32.{name}": str(crc32(array.data)) for name, array in contiguous.items()}
        with atomic_write(path) as stream:
            stream.write(to_bytes(contiguous, metadata=metadata))

    @classmethod
    def load(cls, path: Path) -> Answer:
        """Read a saved answer; raises one of ``UNREADABLE``."""
        probabilities = load_probabilities(path)
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get("crc32") != _checksum_of_numbers(metadata):
                raise ValueError("its numbers do not have the checksum that was stored with them")
            answer = cls(
                patches=int(metadata["patches"]),
                extent=int(metadata["extent"]),
                probabilities=probabilities,
                maps=_stored(file, "maps"),
                cell=float(metadata["cell"]),
                offset=(int(metadata["left"]), int(metadata["top"])),
                kept=_stored(file, "kept"),
                attention=_stored(file, "attention"),
                ratios=_stored(file, "ratios"),
                spreads=[Spread(int(n), *row) for n, *row in _stored(file, "spreads").tolist()],
                classes=_stored(file, "classes") if "classes" in list(file.keys()) else None,
            )
        answer._check_shapes()
        return answer

    def _check_shapes(self) -> None:
        K, rows = len(self.kept), len(self.probabilities) + 1
        shapes = [self.kept.shape, self.attention.shape, self.maps.shape[:1], (self.maps.ndim,)]
        shapes += [self.ratios.shape, (len(self.spreads),)]
        expected: list[tuple[int, ...]] = [(K, 2), (rows, K), (rows,), (3,), (rows, K), (rows,)]
        if self.classes is not None:
            shapes.append(self.classes.shape)
            expected.append((K,))
        if shapes != expected:
            raise ValueError(f"its arrays have the shapes {shapes}, not {expected}")


def cache_name(predictor: Predictor, image: Path, *facts: object) -> str:
    """Name of the file for an image's answer; changes with model, file, patches and ``facts``."""
    key = predictor.fingerprint(image)
    if facts:
        key = fingerprint(image, key, *facts)
    return f"{key}-v{_VERSION}.safetensors"


def load_probabilities(path: Path) -> list[Floats]:
    """Read only the probabilities of an answer, without its maps; raises one of ``UNREADABLE``."""
    with safe_open(path, framework="numpy") as file:
        count = sum(name.startswith("probabilities.") for name in list(file.keys()))
        return [_stored(file, f"probabilities.{i}") for i in range(count)]


def _checksum_of_numbers(metadata: dict[str, str]) -> str:
    numbers = [metadata[name] for name in ("patches", "extent", "cell", "left", "top")]
    return str(crc32("|".join(numbers).encode()))


def _stored(file: Any, name: str) -> npt.NDArray[Any]:
    """Read an array and compare it with its checksum."""
    array: npt.NDArray[Any] = file.get_tensor(name)
    if (file.metadata() or {}).get(f"crc32.{name}") != str(crc32(np.ascontiguousarray(array).data)):
        raise ValueError(f"{name} does not have the checksum that was stored with it")
    return array


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().float().cpu().numpy()
    return array
