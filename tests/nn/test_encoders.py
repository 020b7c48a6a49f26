"""The ResNets have torchvision's names and shapes, and compute what those names mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.nn import ENCODERS, FeatureProjector, ResNet, resnet18, resnet50, thin_resnet

Shapes = dict[str, tuple[int, ...]]
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}


def torchvision(name: str, *, stages: int = 4, channels: int = 3) -> Shapes:
    """Names and shapes of torchvision's state dict without fc, from the architecture's table."""
    shapes: Shapes = {"conv1.weight": (64, channels, 7, 7), **batch_norm("bn1", 64)}
    inputs = 64
    for stage, (depth, width) in enumerate(zip(DEPTHS[name], (64, 128, 256, 512), strict=True)):
        for block in range(depth if stage < stages else 0):
            at = f"layer{stage + 1}.{block}"
            if name == "resnet18":
                outputs, sizes = width, [(width, inputs, 3), (width, width, 3)]
            else:
                outputs = 4 * width
                sizes = [(width, inputs, 1), (width, width, 3), (outputs, width, 1)]
            for number, (out, into, side) in enumerate(sizes, start=1):
                shapes[f"{at}.conv{number}.weight"] = (out, into, side, side)
                shapes |= batch_norm(f"{at}.bn{number}", out)
            if block == 0 and (stage > 0 or inputs != outputs):
                shapes[f"{at}.downsample.0.weight"] = (outputs, inputs, 1, 1)
                shapes |= batch_norm(f"{at}.downsample.1", outputs)
            inputs = outputs
    return shapes


def batch_norm(at: str, width: int) -> Shapes:
    kept = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (width,))
    return {f"{at}.{name}": shape for name, shape in {**kept, "num_batches_tracked": ()}.items()}


def on_no_device(make: Callable[..., ResNet], **options: int | bool) -> ResNet:
    with torch.device("meta"):
        return make(**options)


@pytest.mark.parametrize(
    ("name", "tensors", "parameters"),
    [("resnet18", 120, 11_176_512), ("resnet50", 318, 23_508_032)],
)
def test_names_and_shapes_are_torchvisions(name: str, tensors: int, parameters: int) -> None:
    encoder = on_no_device(ENCODERS[name])
    got = {key: tuple(tensor.shape) for key, tensor in encoder.state_dict().items()}
    assert got == torchvision(name)
    assert len(got) == tensors
    assert sum(parameter.numel() for parameter in encoder.parameters()) == parameters


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("name", "stages"), [("resnet18", 2), ("resnet18", 4), ("resnet50", 2)])
def test_cut_encoders_have_only_the_first_stages(name: str, stages: int, channels: int) -> None:
    encoder = on_no_device(ENCODERS[name], stages=stages, channels=channels)
    got = {key: tuple(tensor.shape) for key, tensor in encoder.state_dict().items()}
    assert got == torchvision(name, stages=stages, channels=channels)


@pytest.mark.parametrize(
    ("name", "stages", "channels", "dim"),
    [("resnet18", 2, 1, 128), ("resnet18", 4, 3, 512), ("resnet50", 4, 3, 2048)],
)
def test_embedding_size(name: str, stages: int, channels: int, dim: int) -> None:
    encoder = on_no_device(ENCODERS[name], stages=stages, channels=channels)
    with torch.device("meta"):
        assert encoder(torch.empty(2, channels, 50, 50)).shape == (2, dim)
    assert encoder.dim == dim


def restated(state: dict[str, Tensor], depths: tuple[int, ...], x: Tensor) -> Tensor:
    """torchvision's forward in evaluation mode up to the global pooling, from a state dict."""

    def norm(at: str, y: Tensor) -> Tensor:
        keys = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (state[f"{at}.{key}"] for key in keys)
        return F.batch_norm(y, mean, var, weight, bias)

    def conv(at: str, y: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{at}.weight"]
        return F.conv2d(y, weight, stride=stride, padding=weight.shape[-1] // 2)

    x = F.max_pool2d(F.relu(norm("bn1", conv("conv1", x, 2))), 3, stride=2, padding=1)
    for stage, depth in enumerate(depths):
        for block in range(depth):
            at = f"layer{stage + 1}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            strided = 2 if f"{at}.conv3.weight" in state else 1  # on the 3 x 3 of a bottleneck
            y, number = x, 1
            while f"{at}.conv{number}.weight" in state:
                y = conv(f"{at}.conv{number}", y, stride if number == strided else 1)
                y = norm(f"{at}.bn{number}", y)
                number += 1
                if f"{at}.conv{number}.weight" in state:
                    y = F.relu(y)
            if f"{at}.downsample.0.weight" in state:
                x = norm(f"{at}.downsample.1", conv(f"{at}.downsample.0", x, stride))
            x = F.relu(x + y)
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


@pytest.mark.parametrize(
    ("make", "depths"),
    [(resnet18, (2, 2, 2, 2)), (resnet50, (3, 4, 6, 3)), (thin_resnet, (1, 1, 1, 1))],
)
@pytest.mark.parametrize("stages", [2, 4])
def test_forward_is_that_of_a_resnet(
    make: Callable[..., ResNet], depths: tuple[int, ...], stages: int
) -> None:
    encoder = make(stages=stages, width=4).double().eval()
    for tensor in encoder.state_dict().values():
        if tensor.dim() == 1:  # of the BatchNorms
            nn.init.uniform_(tensor, 0.5, 1.5)
    x = torch.randn(2, 3, 37, 45, dtype=torch.float64)
    torch.testing.assert_close(encoder(x), restated(encoder.state_dict(), depths[:stages], x))


@pytest.mark.parametrize("stages", [0, 5])
def test_a_resnet_has_one_to_four_stages(stages: int) -> None:
    with pytest.raises(ConfigError, match=f"stages={stages}"):
        resnet18(stages=stages)


def test_max_pooling_keeps_the_signal_of_a_small_object() -> None:
    small, large = torch.zeros(1, 1, 48, 48), torch.zeros(1, 1, 96, 96)
    dot = torch.rand(8, 8)
    small[..., 20:28, 20:28] = large[..., 40:48, 40:48] = dot
    maximum = thin_resnet(stages=1, width=8, channels=1, pool="max").eval()
    average = thin_resnet(stages=1, width=8, channels=1).eval()
    torch.testing.assert_close(maximum(small), maximum(large))
    torch.testing.assert_close(average(small), 4 * average(large))


def test_norm_standardizes_the_embeddings() -> None:
    encoder = thin_resnet(stages=1, width=8, channels=1, norm=True)
    x = encoder(torch.randn(64, 1, 16, 16))
    torch.testing.assert_close(x.mean(dim=0), torch.zeros(8), atol=1e-5, rtol=0)
    torch.testing.assert_close(x.std(dim=0, correction=0), torch.ones(8), atol=1e-2, rtol=0)


def test_feature_projector_is_norm_linear_batch_norm_relu() -> None:
    encoder = FeatureProjector(6, dim=4).double().eval()
    _, linear, norm, _ = encoder.project
    assert isinstance(linear, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 2)
    x = torch.randn(5, 6, dtype=torch.float64)
    centred = x - x.mean(dim=1, keepdim=True)
    y = centred / (centred.square().mean(dim=1, keepdim=True) + 1e-5).sqrt()
    y = y @ linear.weight.T + linear.bias
    y = (y - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    torch.testing.assert_close(encoder(x), y.clamp(min=0))
    assert list(encoder.project[0].parameters()) == []


def test_feature_projector_has_the_papers_sizes() -> None:
    encoder = FeatureProjector()
    assert (encoder.patch_shape, encoder.dim) == ((2048,), 512)


def test_the_authors_start_replaces_the_first_layer_of_grey_images_alone() -> None:
    def first(channels: int, **options: Any) -> Tensor:
        torch.manual_seed(0)
        return resnet18(stages=1, channels=channels, **options).conv1.weight.detach()

    grey = first(1, start="authors")
    assert (
        0.98 / 7 < float(grey.abs().max()) <= 1.000001 / 7
    )  # uniform, one channel and a 7 x 7 kernel
    assert float(first(1).std()) == pytest.approx((2 / (64 * 49)) ** 0.5, rel=0.05)
    assert torch.equal(first(3, start="authors"), first(3))
