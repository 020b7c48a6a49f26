"""A config that trains in a second, for tests of the commands."""

from __future__ import annotations

from ips.config_io import override
from tests.training import tiny

TINY = override(tiny.TINY, ["data.train=8", "data.test=4", "train.epochs=1", "train.warmup=0"])
