from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from PIL import Image

from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from tests.cli.tiny import TINY
from tests.command import Outcome


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config, a trained run and an image."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    assert Outcome("train", folder / "tiny.yaml", "--run", folder / "run").code == 0
    Image.fromarray(MegapixelMNIST(200, count=1)[0][0].dense()).save(folder / "digits.png")
    return folder
