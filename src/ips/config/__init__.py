"""The settings of a training: every key with a default and a help text.

::

    section.py   base class of the sections
    data.py      data, patches: which images, and the grid of patches of an image
    network.py   encoder, select, aggregate, dps, cnn: from patches to predictions
    tasks.py     tasks: what is learned
    training.py  augment, train: how it is learned
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
from ips.config.tasks import METRICS, TaskConfig, label_columns
from ips.config.training import AugmentConfig, TrainConfig

__all__ = [
    "GATED",
    "METHODS",
    "METHOD_DEFAULTS",
    "METRICS",
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
    "label_columns",
]
