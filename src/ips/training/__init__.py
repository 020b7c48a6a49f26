"""Training: from a config to data sets and a model, the training loop, run folders."""

from ips.errors import require

require("lightning", "rich", "torchmetrics")

from ips.tasks import Task, build_tasks
from ips.training.data import Data, build_data, open_source
from ips.training.folder import RunFolder
from ips.training.model import build_model
from ips.training.resolve import resolve
from ips.training.run import Evaluation, evaluate, train
from ips.training.store import TrainedModel, load_model, save_model

__all__ = [
    "Data",
    "Evaluation",
    "RunFolder",
    "Task",
    "TrainedModel",
    "build_data",
    "build_model",
    "build_tasks",
    "evaluate",
    "load_model",
    "open_source",
    "resolve",
    "save_model",
    "train",
]
