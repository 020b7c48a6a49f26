"""The network, from patches to predictions: `encoder`, `select`, `aggregate`, `dps`, `cnn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ips.config.section import Section, key
from ips.errors import shown

_LARGEST_LAYER = 16_384  # units; a larger layer would fill the memory instead of failing
LayerSize = Annotated[int, Field(ge=1, le=_LARGEST_LAYER)]


class EncoderConfig(Section):
    """The network that turns a patch into an embedding."""

    name: str | None = key(
        None,
        "Network: resnet18, resnet50, thin-resnet (one block per stage, for laptops), "
        "efficientnet-lite0, timm:NAME, hub:OWNER/REPO, or projector for stored features; null for "
        "efficientnet-lite0 or projector with a table, else resnet18",
    )
    stages: int | None = key(
        None,
        "Number of stages: 1 to 4 of a ResNet, 1 to 7 of EfficientNet; null for all",
        ge=1,
        le=7,
    )
    width: int = key(64, "Number of channels of the first stage of a ResNet", ge=1, le=512)
    start: Literal["kaiming", "authors"] = key(
        "kaiming",
        "Initial first layer of a ResNet for images that are not RGB: kaiming, as in the other "
        "layers, or authors (as in the authors' code)",
    )
    norm: bool = key(False, "BatchNorm of the embedding, which helps small networks to train")
    pool: Literal["mean", "max"] = key(
        "mean", "Pooling of a ResNet, mean or max; max suits small objects in mostly empty patches"
    )
    enlarge: float = key(
        1.0,
        "Factor by which patches are enlarged before a ResNet or EfficientNet, such as 2 for "
        "objects of few pixels",
        ge=1,
        le=16,
    )
    freeze: int = key(
        0,
        "Number of first stages of a pretrained ResNet or EfficientNet, with the layers before "
        "them, that training leaves as they are, which saves time and memory",
        ge=0,
        le=7,
    )
    freeze_norm: bool | None = key(
        None,
        "Freeze the statistics of BatchNorm layers; null for true with train.start=features, else "
        "false",
    )
    weights: Path | None = key(
        None,
        "Pretrained weights: a file (.safetensors, .pth), imagenet, hub:OWNER/REPO, or none; null "
        "for the model's own with EfficientNet, timm: and hub:, else none",
    )
    dim: int = key(512, "Embedding size of the projector", ge=1, le=_LARGEST_LAYER)
    mean: list[float] | None = key(
        None, "Mean per channel of pixels between 0 and 1; null for that of the weights"
    )
    std: list[Annotated[float, Field(gt=0)]] | None = key(
        None, "Standard deviation per channel of these pixels; null for that of the weights"
    )
    inputs: int | None = key(
        None, "Number of channels or features of a patch; null for that of the data", ge=1
    )

    @model_validator(mode="after")
    def _known_name(self) -> EncoderConfig:
        ours = ("resnet18", "resnet50", "thin-resnet", "efficientnet-lite0", "projector")
        if self.name is None or self.name.startswith(("timm:", "hub:")):
            return self
        if self.name not in ours:
            known = ", ".join([*ours, "timm:NAME", "hub:OWNER/REPO"])
            raise ValueError(f"there is no encoder {shown(self.name)}: choose one of {known}")
        return self


class SelectConfig(Section):
    """The selection of patches to learn from."""

    keep: int | None = key(100, "Number M of patches kept per image; null for all", ge=1)
    chunk: int = key(100, "Number I of patches per step of the iterative selection", ge=1)
    mode: Literal["iterative", "exact"] = key(
        "iterative", "Selection: iterative (in steps, Eq. 1), or exact (all patches in one step)"
    )
    load: Literal["eager", "sequential", "lazy"] = key(
        "eager", "Patches in memory: of a batch (eager), image (sequential) or micro-batch (lazy)"
    )
    refresh: float = key(
        1.0,
        "Share of the patches of an image that an epoch scores again once training has begun, "
        "beside the 4 M best by their scores of earlier epochs, such as 0.1; 1 to score all "
        "patches, as in the paper",
        gt=0,
        le=1,
    )
    recall: float = key(
        0.95,
        "Minimum recall of attention: attention to the patches selected from a shortlist, divided "
        "by that to the patches selected by full scoring; below it, more patches are scored",
        gt=0,
        le=1,
    )
    screen: bool = key(
        False,
        "Train a small network along that predicts scores from a coarse view, so that training and "
        "predictions score only the most promising patches, if these have enough of the attention "
        "(select.recall)",
    )
    skip_blank: bool = key(
        False,
        "Skip patches of a single colour, and overlapping ones with such a centre, since their "
        "neighbours show the rest; not for dps and cnn",
    )
    compile: bool = key(False, "Compile the selection pass, which is faster on a GPU")
    micro_batch: Literal["fixed", "chunk"] = key(
        "fixed",
        "Patches embedded at a time in selection: a fixed number that suits the device, or chunk, "
        "I of every image of the batch, as in the paper; both select the same patches",
    )


class AggregateConfig(Section):
    """The aggregation of the kept patches to one prediction per task."""

    name: Literal["cross-attention", "gated-attention"] = key(
        "cross-attention",
        "Aggregator: cross-attention (the paper's), or gated-attention (DeepMIL's)",
    )
    heads: int = key(8, "Number of attention heads", ge=1)
    inner: int | None = key(
        None,
        "Hidden size of the transformer's MLP; null for 4 x embedding size",
        ge=1,
        le=4 * _LARGEST_LAYER,
    )
    start: Literal["xavier", "authors"] = key(
        "xavier",
        "Initial projections of the cross-attention: xavier, or authors (as in the authors' code)",
    )
    dropout: float = key(0.1, "Dropout of the transformer", ge=0, lt=1)
    attention_dropout: float = key(0.1, "Dropout of the attention weights", ge=0, lt=1)
    position: bool = key(False, "Add an encoding of the position of a patch in the image")
    hidden: int = key(128, "Number of hidden units of gated attention", ge=1, le=_LARGEST_LAYER)
    head: list[LayerSize] = key([], "Sizes of the hidden layers of the task heads")


class DPSConfig(Section):
    """Differentiable patch selection (Appendix D.5)."""

    scale: float = key(
        1 / 3,
        "Scale of the image that is scored; a patch per score, about every 16 / scale pixels",
        gt=0,
        le=1,
    )
    samples: int = key(500, "Number of noise samples", ge=1)
    sigma: float = key(0.05, "Standard deviation of the noise at the start of training", ge=0)
    decay: bool = key(True, "Decay sigma linearly to 0")
    clip: float = key(0.1, "Maximum norm of the gradient", gt=0)


class CNNConfig(Section):
    """A CNN on the whole image."""

    scale: float = key(1.0, "Scale of the image, such as 0.333 for a smaller copy", gt=0, le=1)
