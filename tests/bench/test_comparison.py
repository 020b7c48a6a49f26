"""Comparison of arms: their times and their selections."""

from __future__ import annotations

import pytest
import torch

from ips.bench import timing
from ips.bench.comparison import compare_arms, compare_selections, table_rows
from ips.patches import MemoryPatches
from tests.bench.test_timing import FakeTime


def test_differences_are_counted() -> None:
    patches = torch.zeros(6, 1, 4, 4, dtype=torch.uint8)
    patches[4] = 9
    sources = [MemoryPatches(patches), MemoryPatches(patches)]
    first, second = torch.tensor([[0, 1], [0, 1]]), torch.tensor([[1, 0], [2, 4]])
    found = compare_selections(first, second, sources)
    assert (found.images, found.equal, found.patches) == (2, 1, 4)
    assert (found.different, found.same_content) == (2, 1)
    assert str(found) == (
        "same set in 1 of 2 images; 2 of 4 patches differ, 1 of them only in position"
    )


def test_arms_are_compared_with_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTime()
    monkeypatch.setattr(timing, "time", fake)
    sources = [MemoryPatches(torch.arange(5, dtype=torch.uint8).reshape(5, 1, 1, 1))]

    def arm(indices: list[int], seconds: float) -> torch.Tensor:
        fake.now += seconds
        return torch.tensor([indices])

    arms = {
        "baseline": lambda: arm([0, 1], 6),
        "same": lambda: arm([1, 0], 2),
        "other": lambda: arm([1, 4], 12),
    }
    found = compare_arms(
        "case",
        {"N": 5},
        arms,
        sources,
        rounds=2,
        device=torch.device("cpu"),
        log=lambda line: None,
    )
    assert found["seconds"] == {"baseline": [6, 6], "same": [2, 2], "other": [12, 12]}
    assert {name: ratio.median for name, ratio in found["ratios"].items()} == {
        "same": 3,
        "other": 0.5,
    }
    assert (found["agreement"]["same"].equal, found["agreement"]["other"].equal) == (1, 0)
    assert found["agreement"]["other"].different == 1
    assert table_rows(found) == [
        ("case", "baseline", "6.000", "1", ""),
        ("case", "same", "2.000", "3.00 (3.00–3.00)", "the same 2 patches, 1 of 1 images equal"),
        (
            "case",
            "other",
            "12.000",
            "0.50 (0.50–0.50)",
            "same set in 0 of 1 images; 1 of 2 patches differ, 0 of them only in position",
        ),
    ]
