"""The parts put together: Iterative Patch Selection."""

from ips.models.ips import LOADS, IPSNet, Load
from ips.models.outputs import Output, Selected
from ips.models.prediction import Prediction
from ips.models.table import ScoreTable

__all__ = ["LOADS", "IPSNet", "Load", "Output", "Prediction", "ScoreTable", "Selected"]
