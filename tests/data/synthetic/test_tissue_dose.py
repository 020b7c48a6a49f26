from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from ips.data.synthetic.tissue_dose import draw_dose
from ips.data.synthetic.tissue_parts import Cluster, draw_cluster
from ips.data.synthetic.tissue_slides import MPP, SMALLEST_SIDE, load_clusters, write_tissue_slides
from ips.data.table import read_table
from ips.errors import DataError
from ips.survival import concordance

LABELS = ["tumor", "clusters", "area", "months", "event"]


def clusters(count: int) -> list[Cluster]:
    rng = np.random.default_rng(count)
    return [draw_cluster(rng, np.array([500.0, 500.0])) for _ in range(count)]


def test_the_area_is_that_of_the_outlines() -> None:
    found = clusters(3)
    areas = [ConvexHull(cluster.outline).volume for cluster in found]  # area in two dimensions
    dose = draw_dose(found, mpp=0.5, seed=0, number=1)
    assert dose.area == pytest.approx(sum(areas) * 0.25 / 1000)
    assert dose.clusters == 3
    assert draw_dose([], mpp=0.5, seed=0, number=1).area == 0


def test_the_area_decides_the_order_of_times() -> None:
    groups = [clusters(n % 6) for n in range(60)]
    first, second = (
        [draw_dose(group, mpp=MPP, seed=0, number=n) for n, group in enumerate(groups)]
        for _ in range(2)
    )
    assert first == second
    labels = np.array([(dose.months, dose.event) for dose in first], dtype=np.float64)
    index = concordance(np.array([dose.area for dose in first]), labels)
    assert 0.9 < index.value < 1  # the times are noisy
    assert 0.3 < labels[:, 1].mean() < 0.9  # some are censored


def test_the_table_has_the_numbers_of_the_slides(tmp_path: Path) -> None:
    write_tissue_slides(tmp_path, count=4, side=SMALLEST_SIDE, dose=True)
    rows = read_table(tmp_path / "slides.csv", tasks=LABELS)
    assert {row.split for row in rows} == {"train", "test"}
    for number, row in enumerate(rows):
        found = load_clusters(tmp_path / "truth" / f"{row.path.stem}.geojson")
        dose = draw_dose(found, mpp=MPP, seed=0, number=number)
        assert row.labels["clusters"] == str(len(found))
        assert row.labels["tumor"] == str(int(len(found) > 0))
        assert float(row.labels["area"]) == pytest.approx(dose.area, abs=1e-3)
        assert float(row.labels["months"]) == pytest.approx(dose.months, abs=1e-2)
        assert row.labels["event"] == str(int(dose.event))
    assert len({row.labels["clusters"] for row in rows}) > 1
    with pytest.raises(DataError, match="choose another folder"):
        write_tissue_slides(tmp_path, count=4, side=SMALLEST_SIDE)
