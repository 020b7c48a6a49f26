"""Complete networks: Iterative Patch Selection and the methods that it is compared with."""

from ips.models.cnn import CNN
from ips.models.dps import DPSNet, ScoreMap
from ips.models.exporting import ForwardStep
from ips.models.net import LOADS, Load, Net
from ips.models.outputs import Output, Prediction, Selected
from ips.models.scoring import ScoreTable
from ips.models.screen import MeanRecall, Screen, Screened
from ips.models.selecting import IPSNet, SelectingNet
from ips.models.topmil import TopMIL

__all__ = [
    "CNN",
    "LOADS",
    "DPSNet",
    "ForwardStep",
    "IPSNet",
    "Load",
    "MeanRecall",
    "Net",
    "Output",
    "Prediction",
    "ScoreMap",
    "ScoreTable",
    "Screen",
    "Screened",
    "Selected",
    "SelectingNet",
    "TopMIL",
]
