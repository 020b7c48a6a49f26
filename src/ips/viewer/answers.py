"""What a model says of an image, and the map of its attention, kept on disk.

Letters: N patches of an image, K kept, T tasks, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes
from torch import Tensor

from ips.explain import Explanation, attention_map
from ips.files import atomic_write
from ips.predictor import Predictor

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

_VERSION = "2"
_CELLS = 2**20  # of a map


@dataclass(frozen=True)
class Answer:
    """For one image.

    Attributes:
        patches: N.
        extent: side of a patch in full-resolution pixels.
        probabilities: ``(C,)`` per task, in the model's order.
        maps: ``(T + 1, rows, columns)`` attention of each task and its mean; NaN where there is no
            patch, 0 where patches were passed over.
        cell: side of a cell of the maps in full-resolution pixels.
        offset: x, y of their top-left corner.
        kept: ``(K, 2)`` top-left corners of the patches kept, most important first.
        attention: ``(T + 1, K)`` of the patches kept, each row sums to 1.
        classes: ``(K,)`` that the read-out head sees, None without one.
    """

    patches: int
    extent: int
    probabilities: list[Floats]
    maps: Floats
    cell: float
    offset: tuple[int, int]
    kept: Integers
    attention: Floats
    classes: Integers | None

    @classmethod
    def of(cls, explanation: Explanation) -> Answer:
        """What the page shows of an explanation."""
        rows = [*explanation.all_attention.values(), explanation.mean_attention]
        maps = [attention_map(explanation.source, row, max_cells=_CELLS) for row in rows]
        kept = [*(_array(a) for a in explanation.task_attention.values())]
        scores, extent = explanation.patch_scores, explanation.extent
        assert extent is not None  # an image's patches have one
        return cls(
            patches=explanation.patches,
            extent=extent,
            probabilities=[_array(p) for p in explanation.probabilities.values()],
            maps=np.stack([m.values for m in maps]).astype(np.float32),
            cell=maps[0].cell,
            offset=maps[0].offset,
            kept=explanation.coords,
            attention=np.stack([*kept, np.mean(kept, axis=0)]),
            classes=None if scores is None else scores.argmax(axis=1),
        )


def key_of(predictor: Predictor, image: Path) -> str:
    """Changes with the model, the file and how it is cut: the answer to another is not ours."""
    return f"{predictor.fingerprint(image)}-v{_VERSION}"


def save(answer: Answer, path: Path) -> None:
    """Write an answer; the file appears whole or not at all."""
    arrays = {f"probabilities.{i}": row for i, row in enumerate(answer.probabilities)}
    arrays |= {"maps": answer.maps, "attention": answer.attention}
    numbers = {"kept": answer.kept}
    if answer.classes is not None:
        numbers["classes"] = answer.classes
    whole = {name: np.ascontiguousarray(array) for name, array in (arrays | numbers).items()}
    about = {
        "patches": str(answer.patches),
        "extent": str(answer.extent),
        "cell": str(answer.cell),
        "left": str(answer.offset[0]),
        "top": str(answer.offset[1]),
    }
    with atomic_write(path) as stream:
        stream.write(to_bytes(whole, metadata=about))


def load(path: Path) -> Answer | None:
    """The answer in a file; None if there is none, or not a whole one."""
    try:
        with safe_open(path, framework="numpy") as file:
            about, names = file.metadata() or {}, list(file.keys())
            classes = file.get_tensor("classes") if "classes" in names else None
            return Answer(
                patches=int(about["patches"]),
                extent=int(about["extent"]),
                probabilities=_probabilities(file),
                maps=file.get_tensor("maps"),
                cell=float(about["cell"]),
                offset=(int(about["left"]), int(about["top"])),
                kept=file.get_tensor("kept"),
                attention=file.get_tensor("attention"),
                classes=classes,
            )
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def load_probabilities(path: Path) -> list[Floats] | None:
    """Only these, of every task: a list of images needs no maps."""
    try:
        with safe_open(path, framework="numpy") as file:
            return _probabilities(file)
    except (OSError, SafetensorError):
        return None


def _probabilities(file: Any) -> list[Floats]:
    names = [name for name in list(file.keys()) if name.startswith("probabilities.")]
    return [file.get_tensor(f"probabilities.{i}") for i in range(len(names))]


def _array(tensor: Tensor) -> Floats:
    array: Floats = tensor.detach().float().cpu().numpy()
    return array
