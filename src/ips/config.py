"""The settings of a training: every key with a default and a help text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ips.errors import shown

_LARGEST_LAYER = 16_384  # units; a larger layer would fill the memory instead of failing
_Size = Annotated[int, Field(ge=1, le=_LARGEST_LAYER)]
Method = Literal["ips", "rps", "dps", "topmil", "deepmil", "deepmil-plus", "cnn", "ips-deepmil"]
METHODS: tuple[Method, ...] = get_args(Method)


# Every whole number is at most this; larger ones would overflow or never fit into memory.
_LARGEST = 10**9
_MAX_SIDE = 100_000  # of images that are drawn


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            numbers = value if isinstance(value, list) else [value]
            if name != "seed" and any(isinstance(n, int) and n > _LARGEST for n in numbers):
                raise ValueError(f"{name}={shown(value)} is too large: at most {_LARGEST:,}")
            if isinstance(value, Path) and "\0" in str(value):
                raise ValueError(f"{name}={shown(str(value))}: a path has no zero bytes")
        return self


def _key(default: Any, help: str, **limits: Any) -> Any:
    return Field(default, description=help, **limits)


def _seed(help: str) -> Any:
    return _key(0, help, ge=0, lt=2**32)


class MegapixelMNISTConfig(_Section):
    """Digits among noise in a large black image (Sect. 4.3), generated on demand."""

    kind: Literal["megapixel-mnist"] = _key("megapixel-mnist", "Data set")
    side: int = _key(1000, "Image side in pixels", ge=112, le=_MAX_SIDE)
    train: int = _key(2000, "Number of training images per epoch", ge=1)
    validation: int = _key(
        0, "Number of validation images, from a tenth of the training digits; 0 for none", ge=0
    )
    test: int = _key(400, "Number of test images", ge=1)
    seed: int = _seed("Random seed of object placement and noise")
    noise: int | None = _key(None, "Number of noise patterns per image; null for side / 30", ge=0)
    noise_style: Literal["lines", "strokes"] = _key(
        "lines", "Noise patterns: thin lines, as published, or thick strokes, which are harder"
    )
    fresh: bool = _key(True, "Place the digits of the training images anew in every epoch")
    digits: Path | None = _key(
        None, "Folder of `ips data mnist`; null for the 5,000 embedded digits"
    )
    folder: Path | None = _key(
        None,
        "Folder of `ips data megapixel-mnist`, or of the generator of the paper's authors, to read "
        "images from; null to generate them",
    )


class RoadSignsConfig(_Section):
    """Synthetic road scenes with a small speed limit of 50, 70 or 80 on them, or none."""

    kind: Literal["road-signs"] = _key("road-signs", "Data set")
    width: int = _key(800, "Image width in pixels", ge=320, le=_MAX_SIDE)
    height: int = _key(600, "Image height in pixels", ge=240, le=_MAX_SIDE)
    train: int = _key(2000, "Number of training images per epoch", ge=1)
    validation: int = _key(0, "Number of validation images; 0 for none", ge=0)
    test: int = _key(400, "Number of test images", ge=1)
    seed: int = _seed("Random seed of the scenes")
    fresh: bool = _key(True, "Draw new training images in every epoch")


class TrafficSignsConfig(_Section):
    """Swedish traffic signs (Sect. 4.1), downloaded by `ips data traffic-signs FOLDER`."""

    kind: Literal["traffic-signs"] = _key("traffic-signs", "Data set")
    folder: Path = _key(..., "Folder of `ips data traffic-signs`")
    validation: float = _key(
        0.0, "Fraction of training images that is held out for validation; 0 for none", ge=0, lt=1
    )
    seed: int = _seed("Random seed of the augmentation, and of the choice of validation images")
    augment: bool = _key(True, "Augment training images by colour changes and translations")
    exclude: list[str] = _key([], "File names of images to leave out; the paper left out one")


class TableConfig(_Section):
    """Your own data: a CSV with the paths and labels of images, slides or feature files."""

    kind: Literal["table"] = _key("table", "Data set")
    csv: Path = _key(..., "CSV file with a path column, label columns, and perhaps a split column")
    root: Path | None = _key(None, "Folder that paths are relative to; null for that of the CSV")
    path: str = _key("path", "Name of the path column")
    group: str | None = _key(
        None,
        "Column of patients or other groups, which no split divides; null for a column called "
        "patient, case_id or the like; none for no groups",
    )
    test: float = _key(0.2, "Fraction of test images, if there is no split column", gt=0, lt=1)
    validation: float = _key(
        0.2,
        "Fraction of the other images for validation, if the split column names none and no class "
        "would be lost for training; 0 for none",
        ge=0,
        lt=1,
    )
    seed: int = _seed("Random seed of the split")
    exclude: list[str] = _key([], "Files to leave out, as in the path column")
    folds: int | None = _key(
        None, "Number of folds of a cross-validation, see `ips train --folds`; null for none", ge=2
    )
    fold: int = _key(1, "Fold, from 1, whose images are for validation, with folds", ge=1)
    repeat: int = _key(1, "Number of the repetition, from 1; each has other folds", ge=1)

    @model_validator(mode="after")
    def _fold_exists(self) -> TableConfig:
        if self.fold > (self.folds or 1):
            raise ValueError(f"fold={self.fold}, but folds={self.folds}: give a fold that exists")
        return self


AnyDataConfig = MegapixelMNISTConfig | RoadSignsConfig | TrafficSignsConfig | TableConfig
DataConfig = Annotated[AnyDataConfig, Field(discriminator="kind")]


class PatchesConfig(_Section):
    """The grid of patches of an image."""

    size: int = _key(256, "Patch side in pixels, at the resolution that is read", ge=1)
    stride: int | None = _key(
        None, "Distance between patches in pixels; null for size; method dps has its own", ge=1
    )
    edge: Literal["drop", "pad", "fit"] = _key(
        "drop", "Patches across the image border: drop, pad with background, or fit inside"
    )
    level: int | None = _key(None, "Pyramid level to read; null for the finest", ge=0)
    mpp: float | None = _key(None, "Micrometres per pixel to read at, instead of a level", gt=0)
    magnification: float | None = _key(None, "Magnification to read at, instead of a level", gt=0)
    scale: float | None = _key(
        None,
        "Part of the full resolution to read at, such as 0.5, instead of a level; pixels are "
        "averaged",
        gt=0,
        le=1,
    )
    channels: Literal["rgb", "grey", "as-is"] | None = _key(
        None,
        "Channels of a patch: rgb or grey, to which other images are converted, or as-is; null for "
        "those of the training images, or rgb if these differ",
    )
    white: float | None = _key(
        None,
        "Value that becomes 255 in images of more than 8 bits; null for the largest that the file "
        "can store, or states to use; never that of each image",
        gt=0,
    )
    sample: int | None = _key(
        None, "Maximum number of patches per image, sampled once; null for all", ge=1
    )
    slide_mpp: float | None = _key(
        None,
        "Micrometres per full-resolution pixel, for feature files with coordinates in micrometres",
        gt=0,
    )

    @model_validator(mode="after")
    def _one_resolution(self) -> PatchesConfig:
        ways = ("level", "mpp", "magnification", "scale")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(
                f"give one of level, mpp, magnification and scale, not {' and '.join(given)}"
            )
        return self


class EncoderConfig(_Section):
    """The network that turns a patch into an embedding."""

    name: str | None = _key(
        None,
        "Network: resnet18, resnet50, thin-resnet (one block per stage, for laptops), "
        "efficientnet-lite0, timm:NAME, hub:OWNER/REPO, or projector for stored features; null for "
        "efficientnet-lite0 or projector with a table, else resnet18",
    )
    stages: int | None = _key(
        None,
        "Number of stages: 1 to 4 of a ResNet, 1 to 7 of EfficientNet; null for all",
        ge=1,
        le=7,
    )
    width: int = _key(64, "Number of channels of the first stage of a ResNet", ge=1, le=512)
    start: Literal["kaiming", "authors"] = _key(
        "kaiming",
        "Initial first layer of a ResNet for images that are not RGB: kaiming, as in the other "
        "layers, or authors (as in the authors' code)",
    )
    norm: bool = _key(False, "BatchNorm of the embedding, which helps small networks to train")
    pool: Literal["mean", "max"] = _key(
        "mean", "Pooling of a ResNet, mean or max; max suits small objects in mostly empty patches"
    )
    freeze_norm: bool = _key(False, "Freeze the statistics of BatchNorm layers")
    weights: Path | None = _key(
        None,
        "Pretrained weights: a file (.safetensors, .pth), imagenet, hub:OWNER/REPO, or none; null "
        "for the model's own with EfficientNet, timm: and hub:, else none",
    )
    dim: int = _key(512, "Embedding size of the projector", ge=1, le=_LARGEST_LAYER)
    mean: list[float] | None = _key(
        None, "Mean per channel of pixels between 0 and 1; null for that of the weights"
    )
    std: list[Annotated[float, Field(gt=0)]] | None = _key(
        None, "Standard deviation per channel, likewise; null for that of the weights"
    )
    inputs: int | None = _key(
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


class SelectConfig(_Section):
    """The selection of patches to learn from."""

    keep: int | None = _key(100, "Number M of patches kept per image; null for all", ge=1)
    chunk: int = _key(100, "Number I of patches per step of the iterative selection", ge=1)
    mode: Literal["iterative", "exact"] = _key(
        "iterative", "Selection: iterative (in steps, Eq. 1), or exact (all patches in one step)"
    )
    load: Literal["eager", "sequential", "lazy"] = _key(
        "eager", "Patches in memory: of a batch (eager), image (sequential) or micro-batch (lazy)"
    )
    skip_blank: bool = _key(False, "Skip patches of a single colour; not for dps and cnn")
    compile: bool = _key(False, "Compile the selection pass, which is faster on a GPU")
    micro_batch: Literal["fixed", "chunk"] = _key(
        "fixed",
        "Patches embedded at a time in selection: a fixed number that suits the device, or chunk, "
        "I of every image of the batch, as in the paper; both select the same patches",
    )


class AggregateConfig(_Section):
    """The aggregation of the kept patches to one prediction per task."""

    name: Literal["cross-attention", "gated-attention"] = _key(
        "cross-attention",
        "Aggregator: cross-attention (the paper's), or gated-attention (DeepMIL's)",
    )
    heads: int = _key(8, "Number of attention heads", ge=1)
    inner: int | None = _key(
        None,
        "Hidden size of the transformer's MLP; null for 4 x embedding size",
        ge=1,
        le=4 * _LARGEST_LAYER,
    )
    start: Literal["xavier", "authors"] = _key(
        "xavier",
        "Initial projections of the cross-attention: xavier, or authors (as in the authors' code)",
    )
    dropout: float = _key(0.1, "Dropout of the transformer", ge=0, lt=1)
    attention_dropout: float = _key(0.1, "Dropout of the attention weights", ge=0, lt=1)
    position: bool = _key(False, "Add an encoding of the position of a patch in the image")
    hidden: int = _key(128, "Number of hidden units of gated attention", ge=1, le=_LARGEST_LAYER)
    head: list[_Size] = _key([], "Sizes of the hidden layers of the task heads")


class DPSConfig(_Section):
    """Differentiable patch selection (Appendix D.5)."""

    scale: float = _key(
        1 / 3,
        "Scale of the image that is scored; a patch per score, about every 16 / scale pixels",
        gt=0,
        le=1,
    )
    samples: int = _key(500, "Number of noise samples", ge=1)
    sigma: float = _key(0.05, "Standard deviation of the noise at the start of training", ge=0)
    decay: bool = _key(True, "Decay sigma linearly to 0")
    clip: float = _key(0.1, "Maximum norm of the gradient", gt=0)


class AugmentConfig(_Section):
    """Random changes of the training images, different in every epoch."""

    kind: Literal["photographs", "slides", "documents", "none"] | None = _key(
        None,
        "Preset of the settings below: photographs, slides, documents or none; null for "
        "photographs or slides with a table of images, else none",
    )
    flips: Literal["none", "horizontal", "both"] | None = _key(
        None, "Mirrored patches: none, horizontal, or both, also top to bottom"
    )
    turns: bool | None = _key(None, "Quarter turns of patches")
    colour: float | None = _key(
        None, "Largest relative change of brightness, contrast and saturation", ge=0, lt=1
    )
    stain: float | None = _key(
        None, "Largest relative change of the amount of each stain (H, E and DAB)", ge=0, lt=1
    )
    blur: float | None = _key(
        None, "Largest standard deviation of a blur in pixels, of half the images", ge=0, le=10
    )
    shift: float | None = _key(
        None, "Largest shift of the grid of patches, as a fraction of its stride", ge=0, le=0.5
    )


class CNNConfig(_Section):
    """A CNN on the whole image."""

    scale: float = _key(1.0, "Scale of the image, such as 0.333 for a smaller copy", gt=0, le=1)


class TrainConfig(_Section):
    """Optimisation."""

    epochs: int = _key(150, "Number of epochs", ge=1)
    batch: int = _key(16, "Number of images per step", ge=1)
    accumulate: int = _key(1, "Number of batches per update of the weights", ge=1)
    lr: float | None = _key(
        None,
        "Peak learning rate; null for 0.0005 with a table and a pretrained encoder, else 0.001",
        gt=0,
    )
    encoder_lr: float | None = _key(
        None,
        "Learning rate of the encoder as a factor of lr; null for 0.3 with a table and a "
        "pretrained encoder, else 1",
        gt=0,
    )
    weight_decay: float = _key(0.1, "Weight decay of AdamW", ge=0)
    warmup: float | None = _key(
        None, "Epochs of linear warm-up; null for a tenth of all epochs, at most 10", ge=0
    )
    clip: float | None = _key(
        None, "Maximum norm of the gradient; null for no limit, or dps.clip", gt=0
    )
    smoothing: float = _key(0.0, "Label smoothing, such as 0.1", ge=0, lt=1)
    balance: Literal["weights", "sampling", "none"] | None = _key(
        None,
        "Balancing of classes in a table: weights in the loss, sampling of rare classes more "
        "often, or none; null for weights if the largest class has 3 times the images of the "
        "smallest",
    )
    result: Literal["best", "last"] | None = _key(
        None,
        "Epoch of the final model: best on the validation images, or last; null for best with a "
        "table that has validation images, else last",
    )
    monitor: Literal["score", "loss"] = _key(
        "score", "What the best epoch is chosen by: mean score of all tasks, or loss"
    )
    patience: int | None = _key(
        None, "Epochs without improvement after which training stops; null for no limit", ge=1
    )
    seed: int = _seed(
        "Random seed of weights, dropout, augmentation, and the order of images and patches"
    )
    slice: int | None = _key(
        None, "Number of patches embedded at once in training, to save memory; null for all", ge=1
    )
    workers: int = _key(0, "Number of processes that read pixels, with select.load=eager", ge=0)
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = _key(
        "32-true", "Floating-point precision: 32-true, 16-mixed or bf16-mixed"
    )
    deterministic: bool = _key(
        False, "Use only deterministic operations, and name the one that is not; may be slower"
    )

    @property
    def warmup_epochs(self) -> float:
        """Epochs of warm-up; 10 of 150 in the paper, fewer in a short run."""
        return min(10, self.epochs / 10) if self.warmup is None else self.warmup


class TaskConfig(_Section):
    """One prediction per image."""

    kind: Literal["multiclass", "multilabel", "binary"] = _key("multiclass", "Kind of label")
    classes: int = _key(2, "Number of classes", ge=1)
    metric: Literal["accuracy", "exact-match", "auc"] | None = _key(
        None, "Metric; null for accuracy (multiclass), exact-match (multilabel), auc (binary)"
    )
    names: list[str] | None = _key(
        None,
        "Names of the classes, in the order of labels that are numbers; null for those of the data",
    )
    positive: str | None = _key(
        None, "Name of the positive class, if there are two classes; null for the second"
    )

    def ordered(self, names: Sequence[str]) -> list[str]:
        """Names of the classes in the order of the model: the positive class last."""
        return sorted(names, key=lambda name: name == self.positive)

    @model_validator(mode="after")
    def _consistent(self) -> TaskConfig:
        count = 2 if self.kind == "binary" else self.classes
        if self.names is not None and len(set(self.names)) != len(self.names):
            raise ValueError(f"names={shown(self.names)}: two classes have the same name")
        if self.positive is not None and (self.kind == "multilabel" or count != 2):
            raise ValueError(
                f"positive={shown(self.positive)} is for tasks of two classes: leave it out"
            )
        if self.positive is not None and self.positive not in (self.names or [self.positive]):
            known = ", ".join(self.names or [])
            raise ValueError(f"positive={shown(self.positive)} is not one of the names {known}")
        if self.names is not None and len(self.names) != count:
            raise ValueError(f"{len(self.names)} names for {count} classes")
        if self.kind == "binary" and self.classes > 2:
            raise ValueError(f"a binary task has 2 classes, not {self.classes}: make it multiclass")
        if self.kind != "multilabel" and self.metric == "exact-match":
            raise ValueError("exact-match is for multilabel tasks: use accuracy or auc")
        if self.kind == "multiclass" and self.classes < 2:
            raise ValueError("a multiclass task has at least 2 classes")
        return self


GATED = "gated-attention"

# Defaults that differ from those of the sections, by method.
METHOD_DEFAULTS: dict[Any, dict[str, dict[str, Any]]] = {
    "deepmil": {"select": {"keep": None}, "aggregate": {"name": GATED, "hidden": 128}},
    "deepmil-plus": {
        "select": {"keep": None},
        "aggregate": {"name": GATED, "hidden": 1024, "head": [2048, 512]},
    },
    "ips-deepmil": {"aggregate": {"name": GATED}},
}


class Config(_Section):
    """All settings of a training."""

    method: Method = _key("ips", "Method: ips, or the baseline rps, dps, topmil, deepmil, cnn, …")
    data: DataConfig = _key(MegapixelMNISTConfig(), "Images with their labels")
    patches: PatchesConfig = _key(PatchesConfig(), "Grid of patches of an image")
    encoder: EncoderConfig = _key(EncoderConfig(), "Network from a patch to its embedding")
    select: SelectConfig = _key(SelectConfig(), "Selection of patches")
    aggregate: AggregateConfig = _key(AggregateConfig(), "Aggregation of patches to predictions")
    dps: DPSConfig = _key(DPSConfig(), "Settings of method dps")
    cnn: CNNConfig = _key(CNNConfig(), "Settings of method cnn")
    augment: AugmentConfig = _key(AugmentConfig(), "Random changes of the training images")
    train: TrainConfig = _key(TrainConfig(), "Optimisation")
    tasks: dict[str, TaskConfig] = _key(..., "Labels to predict, by name", min_length=1)
    readout: str | None = _key(None, "Task that trains the patch-level head; null for none")
    readout_head: list[_Size] = _key([128], "Sizes of the hidden layers of the patch-level head")

    @model_validator(mode="before")
    @classmethod
    def _method_defaults(cls, values: Any) -> Any:
        method = values.get("method") if isinstance(values, Mapping) else None
        defaults = METHOD_DEFAULTS.get(method, {}) if isinstance(method, str) else {}
        result = values
        for section, keys in defaults.items():
            given = result.get(section, {})
            if isinstance(given, Mapping):
                result = {**result, section: {**keys, **given}}
        return result

    @model_validator(mode="after")
    def _aggregator_of_the_method(self) -> Config:
        if self.method in METHOD_DEFAULTS and self.aggregate.name != GATED:
            raise ValueError(
                f"aggregate.name={self.aggregate.name} with method={self.method}, which uses "
                f"{GATED}: leave out aggregate.name, or use method=ips"
            )
        return self

    @model_validator(mode="after")
    def _readout_is_a_task(self) -> Config:
        if self.readout is not None and self.readout not in self.tasks:
            known = ", ".join(self.tasks)
            raise ValueError(f"readout: {shown(self.readout)} is not one of the tasks: {known}")
        return self
