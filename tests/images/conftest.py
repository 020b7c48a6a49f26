"""A test picture, and the image of every reader that contains it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ips.images import Image
from tests.images.picture_files import HEIGHT, LOSSLESS, WIDTH, Pixels


@pytest.fixture(scope="session")
def picture() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)


@pytest.fixture(params=list(LOSSLESS))
def image(request: pytest.FixtureRequest, tmp_path: Path, picture: Pixels) -> Image:
    return LOSSLESS[request.param](tmp_path, picture)
