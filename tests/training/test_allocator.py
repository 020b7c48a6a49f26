from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from ips.training import allocator


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (2**31 - 1, [(-3, 2**31 - 1), (-1, 2**31 - 1), (-2, 2**26)]),
        (2**25, [(-3, 2**31 - 1), (-3, 2**25), (-1, 2**31 - 1), (-2, 2**26)]),
        (0, [(-3, 2**31 - 1), (-3, 2**25)]),
    ],
    ids=["takes any", "takes 32 MB", "takes none"],
)
def test_nothing_more_is_set_where_the_threshold_is_refused(
    monkeypatch: pytest.MonkeyPatch, most: int, expected: list[tuple[int, int]]
) -> None:
    asked: list[tuple[int, int]] = []

    def mallopt(name: int, value: int) -> int:
        asked.append((name, value))
        return int(name != -3 or value <= most)

    monkeypatch.setattr(allocator.sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    allocator.keep_freed_memory()
    assert asked == expected
