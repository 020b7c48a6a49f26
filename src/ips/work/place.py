"""Where work is done: here, as one share of several, or on Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Self, TypeVar

from ips.errors import ConfigError, require, shown

Item = TypeVar("Item")

LOCAL = "local"
"""Address of a Ray cluster on this machine, which is started for the work and stopped after it."""

_ADDRESS = re.compile(r"local|auto|(ray://)?[\w.\-\[\]:]+:\d+")


@dataclass(frozen=True)
class Place:
    """Where work is done; by default one item after the other in this process.

    Attributes:
        shard: number of a share, from 1, and the number of shares; None for all items.
        ray: address of a Ray cluster: ``local``, ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``;
            None to work without Ray.
        workers: number of workers on Ray; by default one for each GPU, or one for each CPU if the
            work needs no GPU or there is none.
        readers: number of processes that read patches for each worker on Ray; by default the CPUs
            that workers with GPUs leave free, else none.
    """

    shard: tuple[int, int] | None = None
    ray: str | None = None
    workers: int | None = None
    readers: int | None = None

    @classmethod
    def parse(
        cls,
        *,
        shard: str | None = None,
        ray: str | None = None,
        workers: int | None = None,
        readers: int | None = None,
    ) -> Self:
        """Read the options of a command; a mistake is an error that names the option."""
        if shard is not None and ray is not None:
            raise ConfigError("--shard divides the work without Ray: leave out --shard or --ray")
        if ray is None and (workers is not None or readers is not None):
            option = "--readers" if workers is None else "--workers"
            raise ConfigError(f"{option} is a setting of Ray: add --ray, or leave it out")
        if ray is not None:
            require("ray")
            if not is_address(ray):
                raise ConfigError(
                    f"--ray {shown(ray, quote=False)}: is no address of a cluster: give local, "
                    "auto, HOST:PORT or ray://HOST:PORT"
                )
        return cls(None if shard is None else _parse_shard(shard), ray, workers, readers)

    def share(self, items: Mapping[str, Item]) -> dict[str, Item]:
        """The items of this share: every n-th, so that all shares have items of all kinds.

        >>> Place(shard=(2, 3)).share({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5})
        {'b': 2, 'e': 5}
        """
        if self.shard is None:
            return dict(items)
        number, count = self.shard
        return dict(islice(items.items(), number - 1, None, count))


def is_address(text: str) -> bool:
    """Whether a word is the address of a cluster.

    >>> is_address("local"), is_address("ray://head:10001"), is_address("slides/")
    (True, True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def _parse_shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise ConfigError(
            f"--shard {shown(text, quote=False)}: expected NUMBER/COUNT with a number from 1 to "
            "COUNT, such as 2/8: of SLURM, start an array with --array=1-8"
        )
    return number, count
