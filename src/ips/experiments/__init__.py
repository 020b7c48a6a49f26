"""The paper's tables and figures, each a command."""

from ips.experiments.definitions import EXPERIMENTS, experiment_named
from ips.experiments.runner import Plan, run_experiment

__all__ = ["EXPERIMENTS", "Plan", "experiment_named", "run_experiment"]
