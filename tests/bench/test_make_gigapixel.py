"""The script that writes slides of any size."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import ips
from ips.patches import ImagePatches
from tests.bench.scripts import load_script


@pytest.fixture
def script() -> ModuleType:
    return load_script("make_gigapixel")


def test_the_slide_has_levels_and_tissue(script: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "slide.tif"
    script.main([str(path), "--side", "2048"])
    with ips.open_patches(path, patch_size=256) as patches:
        assert isinstance(patches, ImagePatches)
        assert patches.image.level_dimensions == ((2048, 2048), (1024, 1024))
        assert patches.image.mpp == pytest.approx((0.25, 0.25))
        assert len(patches) == 64
        fine = patches.read(range(64)).float()
    with ips.open_patches(path, patch_size=128, mpp=0.5) as patches:
        coarse = patches.read(range(64)).float()
    background = (fine > 250).flatten(1).all(dim=1)
    assert 16 < background.sum() < 64
    # Levels are drawn, not downsampled: they agree in the mean of a patch, not in every pixel.
    assert (fine.mean(dim=(2, 3)) - coarse.mean(dim=(2, 3))).abs().max() < 4
    assert [p.name for p in tmp_path.iterdir()] == ["slide.tif"]


def test_an_interrupted_script_leaves_no_file(script: ModuleType, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        script.write_slide(tmp_path / "slide.tif", side=2048, on_tile=interrupt)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        script.main([str(tmp_path / "slide.tif"), "--side", "100"])
