from __future__ import annotations

import numpy as np
import pytest
import torch

from ips.errors import ConfigError, PatchError
from ips.images import ArrayImage
from ips.models import LOADS, IPSNet
from ips.nn import CrossAttentionTransformer, Head, thin_resnet
from ips.patches import ImagePatches, MemoryPatches

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
