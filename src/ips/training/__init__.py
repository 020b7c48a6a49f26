"""Training: from a config to data sets and a model, the training loop, run folders."""

from ips.errors import require

require("lightning", "rich", "scipy", "torchmetrics")

from ips.tasks import Task, build_tasks
from ips.training.data import Data, build_data, open_source
from ips.training.folder import RunFolder, TrainedModel, load_model, save_model
from ips.training.model import build_model, resolve
from ips.training.processes import Processes
from ips.training.run import Evaluation, check_processes, evaluate, train

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
