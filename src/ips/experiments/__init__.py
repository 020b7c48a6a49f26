"""The paper's tables and figures, each as a command."""

from ips.experiments.definitions import EXPERIMENTS, get_experiment
from ips.experiments.runner import Plan, run_experiment

__all__ = ["EXPERIMENTS", "Plan", "get_experiment", "run_experiment"]
