"""Peak memory of functions in a new process."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ips.bench import features
from ips.bench.features import Bag, measure_arm
from ips.bench.memory import _images
from ips.bench.memory_step import measure_step
from ips.bench.peak import Peak, peak_memory, run_in_new_process
from ips.errors import IPSError
from tests.ranks import fork_server

MB = 1_000_000


def forked(function: Callable[..., Peak], *arguments: object) -> Peak:
    """`run_in_new_process`, but libraries are loaded already."""
    with ProcessPoolExecutor(max_workers=1, mp_context=fork_server()) as pool:
        return pool.submit(function, *arguments).result()


def test_peak_includes_memory_that_is_freed_again() -> None:
    found = run_in_new_process(peak_memory, partial(np.ones, 80 * MB, np.uint8))
    assert 75 * MB < found.above < 100 * MB
    assert run_in_new_process(peak_memory, list).above < 10 * MB
    assert Peak(before=5, peak=12).above == 7


def test_a_killed_process_is_an_error() -> None:
    assert run_in_new_process(os.getpid) != os.getpid()
    with pytest.raises(IPSError, match="ran out of memory"):
        run_in_new_process(os._exit, 1)


def test_features_from_a_file_need_less_memory_than_the_bag(tmp_path: Path) -> None:
    bag = Bag(rows=20_000, inputs=512, dim=16, keep=40, chunk=4000)  # 41 MB as floats
    features._write(tmp_path / "slide.h5", bag)
    arms = "baseline", "ours"
    peaks = {arm: forked(measure_arm, arm, tmp_path / "slide.h5", bag) for arm in arms}
    assert peaks["baseline"].above > 75 * MB  # the bag and its shuffled copy
    assert peaks["ours"].above < peaks["baseline"].above / 2


def test_a_lazy_step_needs_less_memory_than_a_cnn(tmp_path: Path) -> None:
    paths = _images(tmp_path, 600, 2)
    peaks = {arm: forked(measure_step, arm, paths, 4, 16) for arm in ("lazy", "cnn")}
    assert peaks["cnn"].above > 2 * 4 * 16 * 300**2  # the activations of the first layer
    assert peaks["lazy"].above < peaks["cnn"].above / 2
