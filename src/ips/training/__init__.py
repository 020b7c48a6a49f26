"""Tasks, schedule, the Lightning module and its batches, run folders."""

from ips.errors import require

require("lightning", "rich", "torchmetrics")

from ips.tasks import Task, build_tasks
from ips.training.build import build_data, build_model, open_source, resolve
from ips.training.run import evaluate, train
from ips.training.store import RunFolder, load_model, save_model

__all__ = [
    "RunFolder",
    "Task",
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
