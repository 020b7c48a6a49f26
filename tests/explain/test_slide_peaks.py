"""Attention maps of a trained model peak on the abnormal clusters of generated slides."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import ips
from ips.data.synthetic.tissue_slides import MASK_STEP, write_tissue_slides
from ips.explain import AttentionMap

RUN = Path(__file__).parent.parent / "fixtures" / "slides"
SLIDES = 24

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Look = tuple[AttentionMap, Mask, bool]


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> list[Look]:
    """Of each slide the map, where its clusters are, and whether the answer is right."""
    folder = tmp_path_factory.mktemp("slides")
    write_tissue_slides(folder, count=SLIDES, side=1024, seed=1)  # the model saw seed 0
    predictor = ips.load(RUN)
    with (folder / "slides.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    found: list[Look] = []
    for row in rows:
        path = folder / row["path"]
        answer = predictor.predict(path)
        with Image.open(folder / "masks" / f"{path.stem}.png") as picture:
            mask = np.asarray(picture) > 0
        right = (float(answer.probabilities["tumor"][0]) >= 0.5) == (row["tumor"] == "1")
        found.append((answer.map(), mask, right))
    return found


def on_a_cluster(found: AttentionMap, mask: Mask) -> bool:
    """Whether the cell with the highest attention shares a pixel with an abnormal cluster."""
    row, column = np.unravel_index(np.nanargmax(found.values), found.values.shape)
    x = int((found.offset[0] + column * found.cell) / MASK_STEP)
    y = int((found.offset[1] + row * found.cell) / MASK_STEP)
    side = int(found.cell / MASK_STEP)
    return bool(mask[y : y + side, x : x + side].any())


def test_the_peak_is_on_an_abnormal_cluster(looks: list[Look]) -> None:
    assert np.mean([right for _, _, right in looks]) >= 0.75
    there = [on_a_cluster(found, mask) for found, mask, right in looks if right and mask.any()]
    assert len(there) >= 6
    assert np.mean(there) >= 0.9


def test_the_peak_is_rarely_on_clusters_of_another_slide(looks: list[Look]) -> None:
    """The truth of another slide: what the share is for a map that has nothing to do with it."""
    ill = [(found, mask) for found, mask, right in looks if right and mask.any()]
    others = [
        on_a_cluster(found, mask)
        for (found, _), (_, mask) in zip(ill, ill[1:] + ill[:1], strict=True)
    ]
    assert np.mean(others) <= 0.5
