"""What a model says of an image, and of the patches it looked at.

Letters: K patches kept of the image, C classes of a task.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor


@dataclass(frozen=True)
class Prediction:
    """The answer for one image, with the patches it rests on, most important first.

    Attributes:
        name: the image.
        logits: ``(C,)`` per task.
        probabilities: ``(C,)`` per task.
        indices: ``(K,)`` patch numbers in the image's own numbering.
        coords: ``(K, 2)`` their top-left corners, x, y in full-resolution pixels.
        extent: side of a patch in full-resolution pixels, None if its source does not say.
        attention: ``(K,)``, mean over heads and tasks; sums to 1.
        task_attention: ``(K,)`` per task, mean over its heads.
        patch_probabilities: ``(K, C)`` class scores of each patch (Sect. 4.5), two columns for a
            binary task; None without a read-out head.
        patches: N, how many there were to choose from.
    """

    name: str
    logits: dict[str, Tensor]
    probabilities: dict[str, Tensor]
    indices: Tensor
    coords: npt.NDArray[np.int64]
    extent: int | None
    attention: Tensor
    task_attention: dict[str, Tensor]
    patch_probabilities: Tensor | None
    patches: int
