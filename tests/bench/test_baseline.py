"""The baseline selects the same patches as the fast selection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from ips.bench.baseline import PaperIPS
from ips.bench.cases import briefly_trained, mnist_net, projector_net
from ips.bench.comparison import compare_selections, embed_every_patch
from ips.errors import ConfigError
from ips.models import IPSNet
from ips.nn import GatedAttention, Head, resnet18
from ips.patches import MemoryPatches


@pytest.fixture(autouse=True)
def double() -> Iterator[None]:
    # In float64 rounding never changes the order of scores.
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pixels(count: int, *, images: int = 3) -> list[MemoryPatches]:
    patches = torch.randint(0, 256, (images, count, 1, 16, 16), dtype=torch.uint8)
    return [MemoryPatches(p) for p in patches]


def labels(images: int) -> dict[str, Tensor]:
    classes = {task: torch.zeros(images).long() for task in ("majority", "max", "top")}
    return classes | {"multi": torch.zeros(images, 10)}


@pytest.mark.parametrize("position", [True, False])
@pytest.mark.parametrize(("count", "keep", "chunk"), [(30, 6, 7), (24, 8, 8), (5, 6, 4), (6, 6, 4)])
def test_selects_the_same_patches(count: int, keep: int, chunk: int, position: bool) -> None:
    sources = pixels(count)
    net = briefly_trained(
        mnist_net(keep=keep, chunk=chunk, width=16).double(), sources, labels(3), steps=2
    )
    net.position = position
    paper = PaperIPS(net)
    kept = paper.select(paper.load(sources), seed=3)
    ours = net.select(sources, seed=3).selection.indices
    assert compare_selections(kept.indices, ours, sources).equal == 3
    with embed_every_patch():
        assert torch.equal(net.select(sources, seed=3).selection.indices, ours)


def test_selects_the_same_features() -> None:
    features = torch.randn(2, 50, 12)
    sources = [MemoryPatches(f) for f in features]
    net = projector_net(inputs=12, dim=16, keep=9, chunk=8).double()
    net = briefly_trained(net, sources, {"tumour": torch.tensor([0, 1])}, steps=2)
    paper = PaperIPS(net)
    kept = paper.select(paper.load(sources), seed=0)
    assert (
        compare_selections(kept.indices, net.select(sources).selection.indices, sources).equal == 2
    )
    expected = torch.stack([f[i] for f, i in zip(features, kept.indices, strict=True)])
    assert torch.equal(kept.patches, expected)


def test_gives_the_same_logits() -> None:
    sources = pixels(20)
    net = briefly_trained(
        mnist_net(keep=6, chunk=5, width=16).double(), sources, labels(3), steps=2
    )
    paper = PaperIPS(net).eval()
    logits = paper(paper.select(paper.load(sources), seed=0))
    chosen = net.select(sources, seed=0)
    for task, expected in net(chosen.patches, chosen.selection).logits.items():
        torch.testing.assert_close(logits[task], expected)


def test_copies_the_encoder_in_contiguous_format() -> None:
    net = mnist_net(keep=6, chunk=5, width=16).double()
    paper = PaperIPS(net)
    weight = paper.encoder.get_submodule("layer1.0.conv1").weight
    assert isinstance(weight, Tensor)
    assert weight.is_contiguous()
    original = net.encoder.get_submodule("layer1.0.conv1").weight
    assert isinstance(original, Tensor)
    assert original.is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        weight.zero_()
    assert original.abs().sum() > 0


def test_selection_does_not_change_training_mode_or_statistics() -> None:
    sources = pixels(12)
    paper = PaperIPS(mnist_net(keep=4, chunk=4, width=16).double()).train()
    before = {name: t.clone() for name, t in paper.state_dict().items()}
    paper.select(paper.load(sources), seed=0)
    assert paper.encoder.training
    assert all(torch.equal(t, before[name]) for name, t in paper.state_dict().items())


def test_needs_cross_attention() -> None:
    encoder = resnet18(stages=1, width=16, channels=1)
    heads = {"a": Head(16, 2, activation=torch.sigmoid)}
    net = IPSNet(encoder, GatedAttention(16, tokens=1), heads, keep=2, chunk=2)
    with pytest.raises(ConfigError, match="cross-attention, not by GatedAttention"):
        PaperIPS(net)
