"""Search for good settings on the validation images.

space.py    the settings to choose, and their ranges
search.py   train one run after another, with Optuna
picture.py  scores by setting
trial.py    one run of a search
"""

from ips.errors import require

require("optuna")

from ips.tuning.search import Tuning, tune
from ips.tuning.trial import Trial

__all__ = ["Trial", "Tuning", "tune"]
