from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile

from ips.errors import ConfigError
from ips.slides.listing import list_slides


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("x/a.tif", "x/b.tif", "x/.a.tif.part", "x/notes.txt", "y/a.tif"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        tifffile.imwrite(tmp_path / name, np.zeros((8, 8), np.uint8))
    (tmp_path / "empty").mkdir()
    return tmp_path


def test_files_and_folders_are_listed_once(folder: Path) -> None:
    a, b = folder / "x" / "a.tif", folder / "x" / "b.tif"
    assert list_slides([b, folder / "x", a]) == [b, a]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["empty"], "there is no slide in this folder"),
        (["none.tif"], "does not exist"),
        (["x", "y"], "have the same name: write them to two folders"),
    ],
)
def test_wrong_paths_are_refused(folder: Path, paths: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        list_slides([folder / path for path in paths])
