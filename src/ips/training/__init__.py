"""Training: from a config to data sets and a model, the training loop, run folders."""

from typing import TYPE_CHECKING

from ips.errors import require

require("lightning", "rich", "scipy", "torchmetrics")

from ips.tasks import Task, build_tasks
from ips.training.data import Data, build_data, open_source
from ips.training.folder import RunFolder, TrainedModel, load_model, save_model
from ips.training.model import build_model, resolve
from ips.training.processes import Processes

if TYPE_CHECKING:
    from ips.training.run import Evaluation, check_processes, evaluate, train

# Imported at first use: predicting does not wait for Lightning.
_OF_RUN = {"Evaluation", "check_processes", "evaluate", "train"}

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
    if name not in _OF_RUN:
        raise AttributeError(f"module 'ips.training' has no attribute {name!r}")
    from ips.training import run

    return getattr(run, name)
