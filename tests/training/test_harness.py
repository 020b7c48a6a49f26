from __future__ import annotations

import logging
import signal
from collections.abc import Sequence

import pytest

from ips.errors import ImageError
from ips.training.harness import _session
from ips.training.loaders import make_loader


def read(numbers: Sequence[int]) -> list[int]:
    if 3 in numbers:
        raise ImageError("3.png: damaged")
    return list(numbers)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_raises_the_error_of_a_worker_without_its_traceback(workers: int) -> None:
    batches = iter(make_loader(read, [[4, 2], [0, 1], [3]], workers=workers))
    assert [next(batches), next(batches)] == [[4, 2], [0, 1]]
    with pytest.raises(ImageError, match=r"^3\.png: damaged$"):
        next(batches)


def exit_as_lightning() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit


def test_an_exit_of_lightning_is_a_keyboard_interrupt() -> None:
    before = signal.getsignal(signal.SIGINT), logging.getLogger("lightning.pytorch").level
    with pytest.raises(KeyboardInterrupt), _session():
        exit_as_lightning()
    after = signal.getsignal(signal.SIGINT), logging.getLogger("lightning.pytorch").level
    assert after == before
