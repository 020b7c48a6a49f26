"""EfficientNet-lite0 against a plain restatement of it, with the public ImageNet weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from ips.errors import ConfigError
from ips.nn import EfficientNetLite, build_encoder
from ips.nn.efficientnet import imagenet_file
from ips.nn.folding import FoldedEncoder

State = dict[str, Tensor]


@pytest.fixture(scope="module")
def state() -> State:
    weights: State = torch.load(imagenet_file(), weights_only=True)
    return weights


def convolved(x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """A convolution whose output has the size of its input divided by the stride, as TensorFlow."""
    k, side = weight.shape[-1], x.shape[-1]
    total = max((-(-side // stride) - 1) * stride + k - side, 0)
    before, after = total // 2, total - total // 2
    groups = x.shape[1] if weight.shape[1] == 1 else 1
    return F.conv2d(F.pad(x, (before, after, before, after)), weight, stride=stride, groups=groups)


def normed(x: Tensor, state: State, name: str) -> Tensor:
    mean, variance = state[f"{name}.running_mean"], state[f"{name}.running_var"]
    return F.batch_norm(x, mean, variance, state[f"{name}.weight"], state[f"{name}.bias"], eps=1e-3)


def restated(x: Tensor, state: State, *, blocks: int) -> Tensor:
    """The feature maps after a number of blocks."""
    x = F.relu6(normed(convolved(x, state["_conv_stem.weight"], 2), state, "_bn0"))
    for number in range(blocks):
        block = f"_blocks.{number}"
        y = x
        if f"{block}._expand_conv.weight" in state:
            y = convolved(y, state[f"{block}._expand_conv.weight"])
            y = F.relu6(normed(y, state, f"{block}._bn0"))
        stride = 2 if number in (1, 3, 5, 11) else 1
        y = convolved(y, state[f"{block}._depthwise_conv.weight"], stride)
        y = F.relu6(normed(y, state, f"{block}._bn1"))
        y = convolved(y, state[f"{block}._project_conv.weight"])
        y = normed(y, state, f"{block}._bn2")
        x = x + y if y.shape == x.shape else y
    return x


@pytest.mark.parametrize(("stages", "blocks", "dim"), [(1, 1, 16), (4, 8, 80), (7, 16, 320)])
@torch.no_grad()
def test_it_is_the_published_network(state: State, stages: int, blocks: int, dim: int) -> None:
    built = build_encoder("efficientnet-lite0", stages=stages)
    assert (built.dim, built.mean, built.std) == (dim, [127 / 255], [128 / 255])
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    expected = restated(x, state, blocks=blocks)
    net = built.net.eval()
    assert isinstance(net, EfficientNetLite)
    assert torch.allclose(net.maps(x), expected, atol=1e-5)
    assert torch.allclose(net(x), expected.mean(dim=(2, 3)), atol=1e-5)
    folded = FoldedEncoder(net)
    folded.refresh()
    assert torch.allclose(folded(x), net(x), atol=1e-3)


@torch.no_grad()
def test_a_grey_patch_gives_what_its_colour_copy_gives() -> None:
    colour = build_encoder("efficientnet-lite0", stages=3, pool="max").net.eval()
    grey = build_encoder("efficientnet-lite0", stages=3, pool="max", inputs=1).net.eval()
    x = torch.randn(2, 1, 32, 32)
    assert torch.allclose(grey(x), colour(x.expand(-1, 3, -1, -1)), atol=1e-4)


def test_own_weights_and_none(tmp_path: Path) -> None:
    net = EfficientNetLite(stages=2, norm=True)
    save_file(net.state_dict(), tmp_path / "own.safetensors")
    name = "efficientnet-lite0"
    loaded = build_encoder(name, stages=2, norm=True, weights=tmp_path / "own.safetensors").net
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.parameters(), net.parameters(), strict=True)
    )
    torch.manual_seed(12345)
    untrained = build_encoder(name, stages=2, weights="none").net
    assert not torch.equal(next(untrained.parameters()), next(net.parameters()))
    with pytest.raises(ConfigError, match="stages=8: EfficientNet-lite0 has 1 to 7 stages"):
        build_encoder(name, stages=8)
