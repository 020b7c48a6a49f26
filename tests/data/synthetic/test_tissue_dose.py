from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from ips.data.synthetic.tissue_dose import draw_dose
from ips.data.synthetic.tissue_drawing import TissueSlide
from ips.data.synthetic.tissue_parts import Cluster
from ips.data.synthetic.tissue_slides import MPP, SMALLEST_SIDE, load_clusters, write_tissue_slides
from ips.data.table import read_table
from ips.errors import DataError
from ips.survival import concordance

LABELS = ["tumor", "clusters", "area", "months", "event"]


def drawn(number: int) -> list[Cluster]:
    return TissueSlide(2048, seed=0, number=number, abnormal=True, clusters=(0, 5)).clusters


def test_the_area_is_that_of_the_outlines() -> None:
    clusters = drawn(1)
    assert clusters
    areas = [
        ConvexHull(cluster.outline).volume for cluster in clusters
    ]  # an area in two dimensions
    dose = draw_dose(clusters, mpp=0.5, seed=0, number=1)
    assert dose.area == pytest.approx(sum(areas) * 0.25 / 1000)
    assert dose.clusters == len(clusters)
    assert draw_dose([], mpp=0.5, seed=0, number=1).area == 0


def test_the_area_decides_the_order_of_times() -> None:
    doses = [draw_dose(drawn(n % 12) * (1 + n // 12), mpp=1, seed=0, number=n) for n in range(36)]
    assert doses == [
        draw_dose(drawn(n % 12) * (1 + n // 12), mpp=1, seed=0, number=n) for n in range(36)
    ]
    labels = np.array([(dose.months, dose.event) for dose in doses], dtype=np.float64)
    index = concordance(np.array([dose.area for dose in doses]), labels)
    assert 0.85 < index.value < 1  # high, but the times are noisy
    assert 0 < labels[:, 1].mean() < 1  # some are censored


def test_the_table_has_the_numbers_of_the_slides(tmp_path: Path) -> None:
    write_tissue_slides(tmp_path, count=4, side=SMALLEST_SIDE, dose=True)
    rows = read_table(tmp_path / "slides.csv", tasks=LABELS)
    assert {row.split for row in rows} == {"train", "test"}
    for number, row in enumerate(rows):
        clusters = load_clusters(tmp_path / "truth" / f"{row.path.stem}.geojson")
        dose = draw_dose(clusters, mpp=MPP, seed=0, number=number)
        assert row.labels["clusters"] == str(len(clusters))
        assert row.labels["tumor"] == str(int(len(clusters) > 0))
        assert float(row.labels["area"]) == pytest.approx(dose.area, abs=1e-3)
        assert float(row.labels["months"]) == pytest.approx(dose.months, abs=1e-2)
        assert row.labels["event"] == str(int(dose.event))
    assert len({row.labels["clusters"] for row in rows}) > 1
    with pytest.raises(DataError, match="choose another folder"):
        write_tissue_slides(tmp_path, count=4, side=SMALLEST_SIDE)
