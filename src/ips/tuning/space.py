"""The settings to choose, and their ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from ips.config import Config
from ips.errors import ConfigError

_LOG = 10  # a range whose ends differ by this factor is searched by orders of magnitude
_LR = 5.0  # factor around the learning rate of the config
# Networks that take each other's place without further settings or downloads.
_ENCODERS = (("thin-resnet", "resnet18"), ("efficientnet-lite0", "resnet18"))


@dataclass(frozen=True)
class Range:
    """The values of a setting.

    Attributes:
        key: name of the setting, such as ``train.lr``.
        distribution: what Optuna chooses from; choices are texts, as on the command line.
        ends: the least and the largest value, or all choices, to be checked before the search.
    """

    key: str
    distribution: BaseDistribution
    ends: tuple[str, ...]


def parse_range(text: str) -> Range:
    """Parse ``KEY=LOW..HIGH`` or ``KEY=A,B,C``.

    >>> parse_range("select.keep=5,10,20").ends
    ('5', '10', '20')
    >>> parse_range("train.lr=0.0003..0.01").distribution.log
    True
    """
    key, equals, values = text.partition("=")
    if not (key and equals and values):
        raise ConfigError(f"--over {text}: expected KEY=LOW..HIGH or KEY=A,B,C")
    if ".." not in values:
        choices = tuple(dict.fromkeys(choice.strip() for choice in values.split(",")))
        if len(choices) < 2 or "" in choices:
            raise ConfigError(f"--over {text}: give at least two values, separated by commas")
        return Range(key, CategoricalDistribution(choices), choices)
    low, _, high = values.partition("..")
    try:
        ends = float(low), float(high)
    except ValueError as error:
        raise ConfigError(f"--over {text}: {values} is not a range of numbers") from error
    if not (ends[0] < ends[1] and np.isfinite(ends).all()):
        raise ConfigError(f"--over {text}: the first number must be below the second")
    log = ends[0] > 0 and ends[1] >= _LOG * ends[0]
    distribution: BaseDistribution = FloatDistribution(*ends, log=log)
    if low.strip().lstrip("-").isdecimal() and high.strip().isdecimal():
        distribution = IntDistribution(int(low), int(high), log=log)
    return Range(key, distribution, (low.strip(), high.strip()))


def usual_ranges(config: Config) -> list[Range]:
    """Ranges around a resolved config: learning rate, M, patch size and encoder.

    Features have neither patch size nor another encoder, and a method without selection has no M.
    """
    lr, name, size = config.train.lr, config.encoder.name, config.patches.size
    assert lr is not None
    found = [f"train.lr={plain(lr / _LR)}..{plain(lr * _LR)}"]
    if (keep := config.select.keep) is not None and config.method not in ("cnn", "deepmil"):
        found.append(f"select.keep={_doubled(keep, least=1)}")
    if name != "projector" and config.patches.magnification is None:
        found.append(f"patches.size={_doubled(size, least=16)}")
    if config.encoder.weights is None or str(config.encoder.weights) == "none":
        pair = next((pair for pair in _ENCODERS if pair[0] == name), None)
        if pair is not None and (config.encoder.stages or 4) <= 4:
            found.append(f"encoder.name={','.join(pair)}")
    return [parse_range(text) for text in found]


def _doubled(value: int, *, least: int) -> str:
    return ",".join(str(v) for v in (value // 2, value, 2 * value) if v >= least)


def plain(number: float) -> str:
    """A number with three digits, without an exponent, which YAML would read as text.

    >>> plain(0.000012345)
    '0.0000123'
    """
    return np.format_float_positional(number, precision=3, fractional=False, trim="-")


def as_settings(params: Mapping[str, object], config: Config) -> dict[str, str]:
    """The values that Optuna chose, as on the command line.

    If patches become larger, so does their distance, unless it is chosen as well.
    """
    found = {k: plain(v) if isinstance(v, float) else str(v) for k, v in params.items()}
    stride, size = config.patches.stride, found.get("patches.size")
    if size is not None and stride is not None and "patches.stride" not in found:
        found["patches.stride"] = str(max(1, round(stride * int(size) / config.patches.size)))
    return found


def own_values(config: Config, ranges: Sequence[Range]) -> dict[str, object] | None:
    """The values that a resolved config has itself; None if one is outside its range."""
    values: dict[str, object] = {}
    for one in ranges:
        value: object = config
        for part in one.key.split("."):
            value = getattr(value, part, None)
        if isinstance(one.distribution, CategoricalDistribution):
            value = str(value)
            inside = value in one.ends
        else:
            low, high = map(float, one.ends)
            inside = isinstance(value, int | float) and low <= value <= high
        if not inside:
            return None
        values[one.key] = value
    return values
