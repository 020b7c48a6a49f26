"""Recognition in images of any size: look at every patch, learn from the few that matter.

The folders are in the order in which an image goes through them:

    images     a file: pixels at a place
    patches    N addressable patches: grid, features, read(i)
    selection  which M of the N: pure functions of logits
    nn         the parts: encoders, attention, heads
    models     the parts put together: IPSNet
    data       data sets: your own table, megapixel MNIST, road scenes, slides
    training   learn: tasks, schedule, run folders; pretraining: without labels
    explain    pictures of where it looked
    predictor  a trained run as one object; viewer: a page in the browser
    api        what each command does, as a function; cli: the commands
    bench      speed and memory; experiments: the paper's tables
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ips._version import __version__
from ips.errors import IPSError

if TYPE_CHECKING:
    from ips import api, nn, selection
    from ips.images import open_image
    from ips.loading import load
    from ips.models import IPSNet, Prediction
    from ips.patches import MemoryPatches, PatchSource, open_patches
    from ips.predictor import Predictor

# Imported at first use, so that `ips --help` does not wait for torch.
_HOMES = {
    "IPSNet": "ips.models",
    "MemoryPatches": "ips.patches",
    "PatchSource": "ips.patches",
    "Prediction": "ips.models",
    "Predictor": "ips.predictor",
    "api": "ips.api",
    "load": "ips.loading",
    "nn": "ips.nn",
    "open_image": "ips.images",
    "open_patches": "ips.patches",
    "selection": "ips.selection",
}

__all__ = [
    "IPSError",
    "IPSNet",
    "MemoryPatches",
    "PatchSource",
    "Prediction",
    "Predictor",
    "__version__",
    "api",
    "load",
    "nn",
    "open_image",
    "open_patches",
    "selection",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'ips' has no attribute {name!r}")
    from importlib import import_module

    module = import_module(_HOMES[name])
    return module if _HOMES[name] == f"ips.{name}" else getattr(module, name)


def __dir__() -> list[str]:
    return __all__
