"""The parts put together: Iterative Patch Selection, and what it is compared with."""

from ips.models.cnn import CNN
from ips.models.deepmil import DeepMIL
from ips.models.dps import DPSNet, ScoreMap
from ips.models.ips import IPSNet
from ips.models.net import LOADS, Load, Net
from ips.models.outputs import Output, Selected
from ips.models.prediction import Prediction
from ips.models.rps import RPSNet
from ips.models.table import ScoreTable
from ips.models.topmil import TopMIL

__all__ = [
    "CNN",
    "LOADS",
    "DPSNet",
    "DeepMIL",
    "IPSNet",
    "Load",
    "Net",
    "Output",
    "Prediction",
    "RPSNet",
    "ScoreMap",
    "ScoreTable",
    "Selected",
    "TopMIL",
]
