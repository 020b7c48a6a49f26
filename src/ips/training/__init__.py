"""Training: from a config to data sets and a model, the training loop, run folders."""

from importlib import import_module
from typing import TYPE_CHECKING

from ips.errors import require

require("lightning", "rich", "scipy", "torchmetrics")

from ips.tasks import Task, build_tasks
from ips.training.data import Data, build_data, open_source
from ips.training.folder import RunFolder, TrainedModel, load_model, save_model
from ips.training.model import build_model, resolve
from ips.training.processes import Processes

if TYPE_CHECKING:
    from ips.training.run import check_processes, train
    from ips.training.testing import Evaluation, evaluate

# Imported at first use: predicting does not wait for Lightning.
_LATER = {"Evaluation": "testing", "check_processes": "run", "evaluate": "testing", "train": "run"}

__all__ = [
    "Data",
    "Evaluation",
    "Processes",
    "RunFolder",
    "Task",
    "TrainedModel",
    "build_data",
    "build_model",
    "build_tasks",
    "check_processes",
    "evaluate",
    "load_model",
    "open_source",
    "resolve",
    "save_model",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module 'ips.training' has no attribute {name!r}")
    return getattr(import_module(f"ips.training.{_LATER[name]}"), name)
