"""Encoders: ResNets with torchvision's parameter names, and the projector for stored features.

Letters: n patches, C channels, D embedding size.

Any ``nn.Module`` from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)`` can replace
them. If it has an attribute ``patch_shape``, ``(C, h, w)`` or ``(D_in,)`` with None for any size,
patches of another shape are refused with a clear message.
"""

from __future__ import annotations

import copyreg
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import ConfigError


class Enlarge(nn.Module):
    """Enlarge patches before the first layer, which halves them at once: for small objects."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """``(n, C, h, w)`` to ``(n, C, factor·h, factor·w)``."""
        return F.interpolate(x, scale_factor=self.factor, mode="bilinear")


class StagedEncoder(nn.Module, ABC):
    """An image network of stages, globally pooled: what our ResNets and EfficientNet share.

    Args:
        channels: C, 1 for grey and 3 for colour images.
        pool: pooling over the last feature map: ``mean`` as usual, or ``max``, with which a small
            object in an otherwise empty patch counts in full.
        enlarge: factor by which patches are enlarged first.
    """

    dim: int
    norm: nn.Module

    def __init__(self, *, channels: int, pool: Literal["mean", "max"], enlarge: float) -> None:
        super().__init__()
        self.patch_shape = (channels, None, None)
        self.channels, self.pool = channels, pool
        self.enlarge = Enlarge(enlarge) if enlarge != 1 else nn.Identity()
        self._frozen: list[nn.Module] = []

    def forward(self, x: Tensor) -> Tensor:
        """``(n, C, h, w)`` to ``(n, D)``."""
        embedding: Tensor = self.norm(self.pooled(self.maps(x)))
        return embedding

    @abstractmethod
    def maps(self, x: Tensor) -> Tensor:
        """``(n, C, h, w)`` to the feature maps of the last stage, ``(n, D, h', w')``."""

    @abstractmethod
    def layers(self) -> tuple[list[nn.Module], list[nn.Module]]:
        """The layers before the first stage, and the stages."""

    def pooled(self, maps: Tensor) -> Tensor:
        """Feature maps to ``(n, D)``."""
        return maps.amax(dim=(2, 3)) if self.pool == "max" else maps.mean(dim=(2, 3))

    def freeze(self, stages: int) -> None:
        """Keep the weights and BatchNorm statistics of the first stages, also in training mode.

        Backpropagation ends behind them, which saves time and memory.
        """
        before, parts = self.layers()
        if stages > len(parts):
            raise ConfigError(
                f"encoder.freeze={stages} with an encoder of {len(parts)} stages: give at most "
                f"{len(parts)}"
            )
        self._frozen = [*before, *parts[:stages]] if stages else []
        for part in self._frozen:
            part.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for part in self._frozen:
            part.eval()
        return self


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: the block of ResNet-18."""

    expansion = 1

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, inputs, h, w)`` to ``(n, width, h / stride, w / stride)``."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return y


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions and a shortcut: the block of ResNet-50."""

    expansion = 4

    def __init__(self, inputs: int, width: int, *, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        # The stride is in the 3x3 convolution, as in torchvision's weights.
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, inputs, h, w)`` to ``(n, 4·width, h / stride, w / stride)``."""
        y: Tensor = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return y


def _shortcut(inputs: int, outputs: int, *, stride: int) -> nn.Module | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(StagedEncoder):
    """A ResNet without classifier, cut after some of its stages and globally pooled.

    Parameter names are torchvision's, so that public ImageNet weights load unchanged.

    Args:
        block: the residual block.
        depths: number of blocks in each of the four stages.
        stages: number of stages to keep; the paper keeps 2 for megapixel MNIST, otherwise 4.
        width: channels of the first stage, doubled at each further one; 64 in the paper.
        norm: add a BatchNorm over the pooled embedding. The position encoding has the norm
            sqrt(D / 2), which is far above the embeddings of an untrained small network.
        start: initial first layer: ``kaiming`` as in all other layers, or ``authors``: where images
            are not RGB, the authors' code replaces the layer by one with PyTorch's default.
        channels, pool, enlarge: see `StagedEncoder`.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, int, int, int],
        *,
        stages: int = 4,
        width: int = 64,
        channels: int = 3,
        norm: bool = False,
        pool: Literal["mean", "max"] = "mean",
        start: Literal["kaiming", "authors"] = "kaiming",
        enlarge: float = 1.0,
    ) -> None:
        super().__init__(channels=channels, pool=pool, enlarge=enlarge)
        if not 1 <= stages <= 4:
            raise ConfigError(f"encoder.stages={stages}: a ResNet has 1 to 4 stages")
        self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = width
        self.stages = [f"layer{stage + 1}" for stage in range(stages)]
        for stage, name in enumerate(self.stages):
            outputs = width * 2**stage
            layers = []
            for depth in range(depths[stage]):
                stride = 2 if stage and not depth else 1
                layers.append(block(inputs, outputs, stride=stride))
                inputs = outputs * block.expansion
            self.add_module(name, nn.Sequential(*layers))
        self.dim = inputs
        self.norm = nn.BatchNorm1d(inputs) if norm else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if start == "authors" and channels != 3:
            self.conv1.reset_parameters()

    def layers(self) -> tuple[list[nn.Module], list[nn.Module]]:
        return [self.conv1, self.bn1], [self.get_submodule(name) for name in self.stages]

    def maps(self, x: Tensor) -> Tensor:
        x = self.relu(
            self.maxpool(self.bn1(self.conv1(self.enlarge(x))))
        )  # ReLU last: the same result, a quarter of the work
        for name in self.stages:
            x = self.get_submodule(name)(x)
        return x


resnet18 = partial(ResNet, BasicBlock, (2, 2, 2, 2))
"""ResNet-18, with the keyword arguments of `ips.nn.ResNet`."""
resnet50 = partial(ResNet, Bottleneck, (3, 4, 6, 3))
"""ResNet-50, with the keyword arguments of `ips.nn.ResNet`."""
thin_resnet = partial(ResNet, BasicBlock, (1, 1, 1, 1))
"""One block per stage, for small images and CPUs, with the keyword arguments of `ips.nn.ResNet`."""


class FeatureProjector(nn.Module):
    """Encoder of stored features: LayerNorm, linear, BatchNorm, ReLU (Appendix D.6).

    Args:
        inputs: size of the stored features, 2,048 in the paper.
        dim: D, 512 in the paper.
    """

    def __init__(self, inputs: int = 2048, *, dim: int = 512) -> None:
        super().__init__()
        self.patch_shape, self.dim = (inputs,), dim
        self.project = nn.Sequential(
            nn.LayerNorm(inputs, elementwise_affine=False),
            nn.Linear(inputs, dim),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """``(n, inputs)`` to ``(n, D)``."""
        embedding: Tensor = self.project(x)
        return embedding


ENCODERS: dict[str, Callable[..., ResNet]] = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "thin-resnet": thin_resnet,
}


def _format_named(name: str) -> torch.memory_format:
    layout: torch.memory_format = getattr(torch, name)
    return layout


# By itself it is pickled as a name in whatever module has imported torch, perhaps the main one.
copyreg.pickle(torch.memory_format, lambda f: (_format_named, (str(f).removeprefix("torch."),)))


class Normalise(nn.Module):
    """Scale uint8 pixels to 0..1 and standardise them; convert features to floats.

    Args:
        mean, std: per channel, of pixels scaled to 0..1.
        memory_format: layout of the pixels, see `fastest_memory_format`.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], *, memory_format: torch.memory_format
    ) -> None:
        super().__init__()
        self.memory_format = memory_format
        for name, values in (("mean", mean), ("std", std)):
            per_channel = torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)  # (C, 1, 1)
            self.register_buffer(name, per_channel, persistent=False)

    def forward(self, patches: Tensor) -> Tensor:
        """``(n, C, h, w)`` pixels or ``(n, D_in)`` features to floats of the same shape."""
        if patches.dim() == 4:
            patches = patches.contiguous(memory_format=self.memory_format)
        if patches.dtype == torch.uint8:
            return (patches.to(self.mean.dtype) / 255 - self.mean) / self.std
        return patches.to(self.mean.dtype)


def fastest_memory_format(encoder: nn.Module) -> torch.memory_format:
    """Return channels-last, in which convolutions are fastest, wherever it is safe.

    On a CPU the gradient of a strided 1x1 convolution with few input channels can write past its
    workspace in this layout and crash the process (oneDNN issue 6035; 4 and 8 channels crash, 16
    and more do not). Networks with such a layer use the standard layout.
    """
    for part in encoder.modules():
        if (
            isinstance(part, nn.Conv2d)
            and set(part.kernel_size) == {1}
            and set(part.stride) != {1}
            and part.in_channels < 16
        ):
            return torch.contiguous_format
    return torch.channels_last
