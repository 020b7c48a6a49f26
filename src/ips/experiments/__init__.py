"""Reproduce the tables and figures of the paper."""

from ips.experiments.definitions import EXPERIMENTS, get_experiment
from ips.experiments.runner import ExperimentResult, Plan, run_experiment

__all__ = ["EXPERIMENTS", "ExperimentResult", "Plan", "get_experiment", "run_experiment"]
