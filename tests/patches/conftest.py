"""Feature files in every layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patches.feature_files import LAYOUTS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layouts")
    for name, (write, *_) in LAYOUTS.items():
        write(folder / f"{name}.h5")
    return folder
