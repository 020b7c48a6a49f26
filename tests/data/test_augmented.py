"""Random views of training images."""

from __future__ import annotations

import pickle

import numpy as np
import torch
from torch import Tensor

from ips.config import AugmentConfig
from ips.data.augmented import AugmentedData, draw_view
from ips.data.seeded import seeded_generator
from ips.patches import PatchSource, open_patches
from ips.patches.view import View

ALL = AugmentConfig(
    kind="slides",
    flips="both",
    turns=True,
    size=0.3,
    tilt=10,
    colour=0.2,
    stain=0.1,
    blur=1,
    shift=0.25,
)
NONE = AugmentConfig(kind="none", flips="none", turns=False, colour=0, stain=0, blur=0, shift=0)


class Pictures:
    """Two images of noise."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]:
        pixels = np.random.default_rng(index).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        return open_patches(pixels, patch_size=10), {"grade": torch.tensor(index)}


def views(settings: AugmentConfig, count: int = 200) -> list[View]:
    return [draw_view(seeded_generator(0, 0, i), settings) for i in range(count)]


def test_a_view_depends_on_seed_epoch_and_image_only() -> None:
    data = AugmentedData(Pictures(), ALL, seed=3)
    first = [data[i][0].read(range(16)) for i in (0, 1)]
    assert torch.equal(data[0][0].read([5, 2]), first[0][[5, 2]])  # in any order, again and again
    copy = pickle.loads(pickle.dumps(data))
    assert torch.equal(copy[1][0].read(range(16)), first[1])
    data.set_epoch(1)
    later = [data[i][0].read(range(16)) for i in (0, 1)]
    assert not torch.equal(later[0], first[0])
    data.set_epoch(0)
    assert torch.equal(data[0][0].read(range(16)), first[0])
    other = AugmentedData(Pictures(), ALL, seed=4)
    assert not torch.equal(other[0][0].read(range(16)), first[0])
    assert int(data[1][1]["grade"]) == 1


def test_every_setting_is_drawn_within_its_limit() -> None:
    drawn = views(ALL)
    assert {(v.mirrored, v.upside_down) for v in drawn} == {
        *((a, b) for a in (True, False) for b in (True, False))
    }
    assert {v.turns for v in drawn} == {0, 1, 2, 3}
    for name in ("brightness", "contrast"):
        values = [getattr(v, name) for v in drawn]
        assert 0.8 <= min(values) < 0.85
        assert 1.15 < max(values) <= 1.2
    assert 1 / 1.3 <= min(v.size for v in drawn) < 0.8
    assert 1.25 < max(v.size for v in drawn) <= 1.3
    assert 9 < max(abs(v.tilt) for v in drawn) <= 10
    assert 80 < sum(v.blur == 0 for v in drawn) < 120
    assert 0.9 < max(v.blur for v in drawn) <= 1
    assert 0.2 < max(max(v.shift) for v in drawn) <= 0.25


def test_without_settings_nothing_changes_and_photographs_stay_upright() -> None:
    assert set(views(NONE)) == {View()}
    upright = views(NONE.model_copy(update={"flips": "horizontal"}))
    assert {v.mirrored for v in upright} == {True, False}
    assert not any(v.upside_down or v.turns for v in upright)


def test_changes_of_colour_keep_grey_grey() -> None:
    grey = torch.full((1, 3, 2, 2), 120, dtype=torch.uint8)
    red = torch.tensor([200, 40, 40], dtype=torch.uint8).view(1, 3, 1, 1)
    for view in views(NONE.model_copy(update={"colour": 0.3}), 20):
        changed = view.apply(grey)
        assert changed.unique().numel() == 1
        assert not torch.equal(view.apply(red), red)


def test_more_of_every_stain_is_darker() -> None:
    settings = NONE.model_copy(update={"stain": 0.3})
    tissue = torch.tensor([180, 120, 170], dtype=torch.uint8).view(1, 3, 1, 1)
    means = [float(view.apply(tissue).float().mean()) for view in views(settings, 100)]
    plain = float(tissue.float().mean())
    assert min(means) < plain - 3
    assert max(means) > plain + 3
