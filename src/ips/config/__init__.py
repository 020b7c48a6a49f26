"""The settings of a training: every key with a default and a help text.

::

    section.py   base class of the sections
    data.py      data, patches: which images, and the grid of patches of an image
    network.py   encoder, select, aggregate, dps, cnn: from patches to predictions
    training.py  tasks, augment, train: what is learned, and how
    config.py    all sections together, and the defaults of each method
"""

from ips.config.config import GATED, METHOD_DEFAULTS, METHODS, Config
from ips.config.data import (
    AnyDataConfig,
    MegapixelMNISTConfig,
    PatchesConfig,
    RoadSignsConfig,
    TableConfig,
    TrafficSignsConfig,
)
from ips.config.network import EncoderConfig
from ips.config.training import AugmentConfig, TaskConfig, TrainConfig

__all__ = [
    "GATED",
    "METHODS",
    "METHOD_DEFAULTS",
    "AnyDataConfig",
    "AugmentConfig",
    "Config",
    "EncoderConfig",
    "MegapixelMNISTConfig",
    "PatchesConfig",
    "RoadSignsConfig",
    "TableConfig",
    "TaskConfig",
    "TrafficSignsConfig",
    "TrainConfig",
]
