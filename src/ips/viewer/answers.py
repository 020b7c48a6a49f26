"""Predictions with their attention maps, as the page shows them, cached on disk.

Letters: N patches of an image, K kept, T tasks, C classes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
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
from ips.patches import Part, PatchSource
from ips.predictor import Predictor

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_VERSION = 7
_MAX_CELLS, _MAX_TOTAL = 2**20, 2**22  # of an attention map, and of all maps of a task

# Errors of reading an answer: the file is missing or damaged.
UNREADABLE = (OSError, SafetensorError, KeyError, ValueError)


@dataclass(frozen=True)
class PartAnswer:
    """The attention to an image at one magnification.

    Attributes:
        image: number of the image among those of the bag.
        extent: side of a patch in full-resolution pixels.
        magnification: magnification that was read, if there are several; otherwise None.
        shares: share of the attention to the whole bag, per task and for the mean.
        maps: ``(T + 1, rows, columns)`` attention per task, and its mean; NaN where there is no
            patch, 0 where patches were skipped.
        cell: side of a cell of the maps in full-resolution pixels.
        offset: x, y of the maps' top-left corner.
    """

    image: int
    extent: int
    magnification: float | None
    shares: list[float]
    maps: Floats
    cell: float
    offset: tuple[int, int]

    def numbers(self) -> dict[str, Any]:
        """All but the maps."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "maps"}


@dataclass(frozen=True)
class Answer:
    """What the page shows of a prediction.

    Attributes:
        patches: N.
        probabilities: ``(C,)`` per task, in the model's order.
        parts: attention to each image at each magnification.
        kept: ``(K, 2)`` top-left corners of the kept patches, most important first.
        part_numbers: ``(K,)`` the parts that they belong to.
        attention: ``(T + 1, K)`` attention of the kept patches; each row sums to 1.
        ratios: ``(T + 1, K)`` their share of the attention to all patches, as a multiple of an
            even share.
        spreads: how evenly the attention is spread over all patches, per task and for the mean.
        classes: ``(K,)`` classes of the kept patches, None without a patch-level head.
        screened: what a screen left out, in words; empty if all patches were scored.
    """

    patches: int
    probabilities: list[Floats]
    parts: list[PartAnswer]
    kept: Integers
    part_numbers: Integers
    attention: Floats
    ratios: Floats
    spreads: list[Spread]
    classes: Integers | None
    screened: str = ""

    @classmethod
    def from_explanation(cls, explanation: Explanation) -> Answer:
        """Reduce an explanation to what the page shows."""
        rows = [*explanation.all_attention.values(), explanation.mean_attention]
        source = explanation.source
        parts = list(zip(source.parts, source.by_part(), strict=True))
        kept = [_array(attention) for attention in explanation.task_attention.values()]
        spreads, indices = [spread(row) for row in rows], explanation.indices.cpu().numpy()
        ratios = [row[indices] * s.patches for row, s in zip(rows, spreads, strict=True)]
        scores, max_cells = explanation.patch_scores, min(_MAX_CELLS, _MAX_TOTAL // len(parts))
        return cls(
            patches=explanation.patches,
            probabilities=[_array(p) for p in explanation.probabilities.values()],
            parts=[
                _part_answer(part, patches, rows, explanation.seen, max_cells=max_cells)
                for part, patches in parts
            ],
            kept=explanation.coords,
            part_numbers=explanation.part_numbers,
            attention=np.stack([*kept, np.mean(kept, axis=0)]),
            ratios=np.stack(ratios).astype(np.float32),
            spreads=spreads,
            classes=None if scores is None else scores.argmax(axis=1),
            screened=str(explanation.screened or ""),
        )

    def save(self, path: Path) -> None:
        arrays = {"attention": self.attention, "kept": self.kept, "ratios": self.ratios}
        arrays |= {"spreads": np.array([astuple(s) for s in self.spreads])}
        arrays |= {"part_numbers": self.part_numbers}
        arrays |= {f"maps.{i}": part.maps for i, part in enumerate(self.parts)}
        arrays |= {f"probabilities.{i}": row for i, row in enumerate(self.probabilities)}
        if self.classes is not None:
            arrays["classes"] = self.classes
        parts = json.dumps([part.numbers() for part in self.parts])
        metadata = {"patches": str(self.patches), "parts": parts, "screened": self.screened}
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
            parts = [
                PartAnswer(
                    **values | {"offset": tuple(values["offset"])}, maps=_stored(file, f"maps.{i}")
                )
                for i, values in enumerate(json.loads(metadata["parts"]))
            ]
            answer = cls(
                patches=int(metadata["patches"]),
                probabilities=probabilities,
                parts=parts,
                kept=_stored(file, "kept"),
                part_numbers=_stored(file, "part_numbers"),
                attention=_stored(file, "attention"),
                ratios=_stored(file, "ratios"),
                spreads=[Spread(int(n), *row) for n, *row in _stored(file, "spreads").tolist()],
                classes=_stored(file, "classes") if "classes" in list(file.keys()) else None,
                screened=metadata["screened"],
            )
        answer._check_shapes()
        return answer

    def _check_shapes(self) -> None:
        K, rows = len(self.kept), len(self.probabilities) + 1
        shapes = [self.kept.shape, self.attention.shape, self.ratios.shape, (len(self.spreads),)]
        shapes += [self.part_numbers.shape]
        expected: list[tuple[int, ...]] = [(K, 2), (rows, K), (rows, K), (rows,), (K,)]
        for part in self.parts:
            shapes += [part.maps.shape[:1], (part.maps.ndim,)]
            expected += [(rows,), (3,)]
        if self.classes is not None:
            shapes.append(self.classes.shape)
            expected.append((K,))
        if shapes != expected:
            raise ValueError(f"its arrays have the shapes {shapes}, not {expected}")


def cache_name(predictor: Predictor, images: Sequence[Path], *facts: object) -> str:
    """Name of the file for a bag's answer; changes with model, files, patches and ``facts``."""
    key = predictor.fingerprint(*images)
    if facts:
        key = fingerprint(images[0], key, *facts)
    return f"{key}-v{_VERSION}.safetensors"


def load_probabilities(path: Path) -> list[Floats]:
    """Read only the probabilities of an answer, without its maps; raises one of ``UNREADABLE``."""
    with safe_open(path, framework="numpy") as file:
        count = sum(name.startswith("probabilities.") for name in list(file.keys()))
        return [_stored(file, f"probabilities.{i}") for i in range(count)]


def _part_answer(
    part: Part,
    patches: PatchSource,
    rows: list[npt.NDArray[np.float64]],
    seen: npt.NDArray[np.bool_] | None,
    *,
    max_cells: int,
) -> PartAnswer:
    here = None if seen is None else seen[part.patches]
    maps = [
        attention_map(patches, row[part.patches], seen=here, max_cells=max_cells) for row in rows
    ]
    assert part.extent is not None  # the patches of an image have one
    return PartAnswer(
        image=part.image,
        extent=part.extent,
        magnification=part.magnification,
        shares=[float(row[part.patches].sum()) for row in rows],
        maps=np.stack([m.values for m in maps]).astype(np.float32),
        cell=maps[0].cell,
        offset=maps[0].offset,
    )


def _checksum_of_numbers(metadata: dict[str, str]) -> str:
    numbers = [metadata[name] for name in ("patches", "parts", "screened")]
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
