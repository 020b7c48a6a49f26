from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.data.synthetic.scene import ScenePatches
from ips.errors import ConfigError, PatchError
from ips.images import ArrayImage
from ips.models import LOADS, IPSNet
from ips.nn import CrossAttentionTransformer, Head, thin_resnet
from ips.patches import ImagePatches, MemoryPatches
from ips.patches.image import Grid
from ips.patches.source import Indices

SIDE, SHOWN = 12, [2, 5, 6, 9]


def model(*, skip_blank: bool) -> IPSNet:
    torch.manual_seed(0)
    return IPSNet(
        thin_resnet(stages=1, width=8, channels=1),
        CrossAttentionTransformer(8, tokens=1, heads=2),
        {"grade": Head(8, 2, activation=torch.sigmoid)},
        keep=6,
        chunk=3,
        position=True,
        skip_blank=skip_blank,
    )


def image() -> MemoryPatches:
    patches = torch.zeros(12, 1, SIDE, SIDE, dtype=torch.uint8)
    patches[7] = 255
    for number in SHOWN:
        patches[number, 0, number % SIDE, 3] = 200
    return MemoryPatches(patches)


@pytest.mark.parametrize("load", LOADS)
def test_blank_patches_are_not_selected(load: str) -> None:
    chosen = model(skip_blank=True).select([image()], load=load, embeddings=True)  # type: ignore[arg-type]
    kept = chosen.selection.indices[chosen.selection.mask]
    assert sorted(kept.tolist()) == SHOWN
    assert chosen.embeddings is not None


def test_overlapping_patches_are_skipped_if_only_their_margin_shows_something() -> None:
    pixels = np.zeros((24, 24, 1), np.uint8)
    pixels[11, 11] = 200  # on 3 x 3 of the 4 x 4 patches, in the cell of the second in each row
    source = ImagePatches(ArrayImage(pixels), patch_size=12, stride=4)
    chosen = model(skip_blank=True).select([source]).selection
    kept = chosen.indices[chosen.mask]
    assert sorted(kept.tolist()) == [0, 1, 2, 4, 5, 8]  # not 6, 9 and 10; at the border all


class Drawn(ScenePatches):
    """A scene that notes which of its patches are read."""

    asked: set[int]

    def read(self, indices: Indices) -> Tensor:
        self.asked |= set(torch.as_tensor(indices).tolist())
        return super().read(indices)


def test_what_is_known_to_be_blank_is_not_even_read() -> None:
    cells = np.full((2, 5, 5), 200, np.uint8)
    grid = Grid(60, 60, patch=SIDE, stride=SIDE)
    source = Drawn(cells, places=np.array([[2, 3], [40, 26]]), grid=grid, name="scene")
    source.asked = set()
    chosen = {load: model(skip_blank=True).select([source], load=load) for load in LOADS[::-1]}
    assert source.asked == set(range(25))  # by eager and sequential
    source.asked = set()
    again = model(skip_blank=True).select([source], load="lazy").selection
    assert source.asked == {0, 13}
    for each in chosen.values():
        assert torch.equal(each.selection.indices, again.indices)
        assert sorted(again.indices[again.mask].tolist()) == [0, 13]


def test_patches_keep_their_indices() -> None:
    """Positions count, so leaving the blank ones out must not renumber the others."""
    prediction = model(skip_blank=True).predict(image())
    assert sorted(prediction.indices.tolist()) == SHOWN
    assert prediction.patches == 12


def test_a_blank_image_is_still_predicted() -> None:
    empty = MemoryPatches(torch.full((9, 1, SIDE, SIDE), 255, dtype=torch.uint8))
    prediction = model(skip_blank=True).predict(empty)
    assert len(prediction.indices) == 6
    assert prediction.probabilities["grade"].isfinite().all()
    chosen = model(skip_blank=True).select([empty]).selection
    assert chosen.scores.isfinite().all()


def test_without_skip_blank_they_are_selected() -> None:
    chosen = model(skip_blank=False).select([image()]).selection
    assert chosen.mask.all()
    assert not set(chosen.indices[0].tolist()) <= set(SHOWN)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_score_that_is_not_finite_is_an_error(value: float) -> None:
    net = model(skip_blank=True)
    assert isinstance(net.aggregator, CrossAttentionTransformer)
    with torch.no_grad():
        net.aggregator.q.fill_(value)
    with pytest.raises(PatchError, match="are not finite numbers"):
        net.select([image()])


def test_batch_norm_refuses_a_single_patch() -> None:
    net = IPSNet(
        thin_resnet(stages=1, width=8, channels=1, norm=True),
        CrossAttentionTransformer(8, tokens=1, heads=2),
        {"grade": Head(8, 2, activation=torch.sigmoid)},
        keep=1,
        chunk=3,
    )
    chosen = net.select([image()])
    with pytest.raises(ConfigError, match="to 2 or more"):
        net(chosen.patches, chosen.selection)
    net.eval()(chosen.patches, chosen.selection)


def test_tasks_may_have_any_name() -> None:
    torch.manual_seed(0)
    net = IPSNet(
        thin_resnet(stages=1, width=8, channels=1),
        CrossAttentionTransformer(8, tokens=2, heads=2),
        {name: Head(8, 2, activation=torch.sigmoid) for name in ("type", "her2.status")},
        keep=3,
        chunk=3,
    )
    assert set(net.predict(image()).logits) == {"type", "her2.status"}
