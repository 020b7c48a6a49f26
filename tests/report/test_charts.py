"""Ticks and points of charts."""

from __future__ import annotations

import numpy as np

from ips.report.charts import Line, epoch_chart, ticks


def test_ticks_are_round_numbers() -> None:
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]
    assert ticks(1, 3, count=6, whole=True) == [1, 2, 3]
    assert ticks(2.03, 2.21) == [2.05, 2.1, 2.15, 2.2]


def test_points_are_finite_and_few() -> None:
    chart = epoch_chart(np.arange(1.0, 6), {"a": np.linspace(0, 1, 5)}, name="a", unit=True)
    line = Line("", np.array([1, 2, 5.0]), np.array([0, np.nan, 1.0]))
    assert chart.points(line) == ["0.0,190.0", "366.0,0.0"]
    many = np.linspace(1, 5, 5000)
    points = chart.points(Line("", many, many / 5))
    assert len(points) == 400
    assert points[-1] == "366.0,0.0"
