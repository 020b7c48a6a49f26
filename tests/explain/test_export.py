"""The names of the files that are written for an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from ips.errors import ConfigError
from ips.explain.export import output_stems


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
