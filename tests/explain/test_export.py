"""The files that are written for an image: their names, and the table of patches."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ips.errors import ConfigError
from ips.explain.export import output_stems, write_patches
from ips.models import MeanRecall, Screened
from ips.patches import open_patches
from ips.statistics import Interval
from tests.explain.explained import explained


def test_images_with_the_same_name_get_different_stems(tmp_path: Path) -> None:
    images = ["x.png", "a/x.png", "x-2.png", "b.h5::x[1]"]
    assert output_stems(images, folder=tmp_path) == ["x", "x-2", "x-2-2", "b.h5-x_1_"]
    stems = output_stems(images[:3], folder=tmp_path, endings=[".png"], base="-a")
    assert stems == ["x-a", "x-a-2", "x-2-a"]


def test_an_output_never_replaces_an_input(tmp_path: Path) -> None:
    images = [str(tmp_path / "x.png"), str(tmp_path / "x-map.tif")]
    assert output_stems(images, folder=tmp_path / "out") == ["x", "x-map"]
    with pytest.raises(ConfigError, match=r"x-map\.tif, which is one of the images"):
        output_stems(images, folder=tmp_path)


def test_the_table_says_which_patches_a_screen_left_out(tmp_path: Path) -> None:
    source = open_patches(np.zeros((30, 40, 3), np.uint8), patch_size=10)
    scored = np.arange(len(source)) % 3 > 0
    explanation = explained(source)
    recall = MeanRecall(Interval(0.8, 0.7, 0.9), Interval(0.97, 0.95, 0.98))
    for screened in (None, Screened(scored, recall)):
        write_patches(tmp_path / "a.csv", replace(explanation, screened=screened))
        with (tmp_path / "a.csv").open(newline="") as file:
            found = [row.get("scored") for row in csv.DictReader(file)]
        assert found == ([None] * 12 if screened is None else [str(int(s)) for s in scored])
