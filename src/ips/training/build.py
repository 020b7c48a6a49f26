"""From a config to the parts: data sets, tasks, the model. Plain functions, nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from ips.config import (
    Config,
    DataConfig,
    EncoderConfig,
    MegapixelMNISTConfig,
    PatchesConfig,
    RoadSignsConfig,
    TableConfig,
    TrafficSignsConfig,
)
from ips.data import traffic_signs
from ips.data.labels import encode_labels
from ips.data.split import stratified_split
from ips.data.synthetic import megapixel_mnist, road_signs
from ips.data.synthetic.megapixel_mnist_files import SavedMegapixelMNIST
from ips.data.table import TableData, read_table
from ips.errors import ConfigError, DataError
from ips.images import Image
from ips.models import CNN, DPSNet, IPSNet, Net, ScoreMap, SelectingNet, TopMIL
from ips.nn import (
    ENCODERS,
    Aggregator,
    BuiltEncoder,
    CrossAttentionTransformer,
    GatedAttention,
    Head,
    PatchReadout,
    ResNet,
    build_encoder,
)
from ips.nn.weights import is_name, normalisation
from ips.patches import PatchSource, open_patches
from ips.patches.features import check_widths
from ips.tasks import Task, build_tasks
from ips.training.loading import DataSet, Sampled

_RANDOM = ("rps", "deepmil", "deepmil-plus")  # methods that draw patches at random, or use all


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data sets of a config, and the class names of the tasks that the data names.

    There is no validation set yet: nothing is chosen during training.
    """

    train: DataSet
    validation: DataSet | None = None
    test: DataSet
    names: dict[str, list[str]] = field(default_factory=dict)


def build_data(config: Config) -> Data:
    """The data sets that ``config.data`` describes."""
    data = _whole_data(config)
    if (count := config.patches.sample) is None:
        return data
    sample = partial(Sampled, count=count, seed=config.train.seed)
    validation = data.validation and sample(data.validation)
    return replace(data, train=sample(data.train), validation=validation, test=sample(data.test))


def _whole_data(config: Config) -> Data:
    match config.data:
        case MegapixelMNISTConfig() as data:
            _check_labels(config, megapixel_mnist.TASKS)
            return _megapixel_mnist(data, config.patches)
        case RoadSignsConfig() as data:
            _check_labels(config, road_signs.TASKS)
            return _road_signs(data, config.patches)
        case TrafficSignsConfig() as data:
            _check_labels(config, traffic_signs.TASKS)
            return _traffic_signs(data, config.patches)
        case TableConfig() as data:
            return _table(data, config)


def _check_labels(config: Config, labels: Mapping[str, tuple[str, int]]) -> None:
    """A task is one of the labels that the data set has."""
    for name, task in config.tasks.items():
        if name not in labels:
            near = get_close_matches(name, labels, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(labels)}"
            raise ConfigError(f"tasks.{name}: {config.data.kind} has no such label: {hint}")
        kind, classes = labels[name]
        if (task.kind, task.classes) != (kind, classes):
            raise ConfigError(
                f"tasks.{name}: kind={task.kind} with classes={task.classes}, but this label of "
                f"{config.data.kind} needs kind={kind} with classes={classes}"
            )


def _megapixel_mnist(data: MegapixelMNISTConfig, patches: PatchesConfig) -> Data:
    if data.folder is not None:
        saved = partial(SavedMegapixelMNIST, data.folder, **_grid(patches))
        return Data(train=saved(split="train"), test=saved(split="test"))
    make = partial(
        megapixel_mnist.MegapixelMNIST,
        data.side,
        seed=data.seed,
        noise=data.noise,
        digits=data.digits,
        **_grid(patches),
    )
    train = make(count=data.train, split="train", fresh=data.fresh)
    return Data(train=train, test=make(count=data.test, split="test"))


def _road_signs(data: RoadSignsConfig, patches: PatchesConfig) -> Data:
    make = partial(
        road_signs.RoadSigns,
        width=data.width,
        height=data.height,
        seed=data.seed,
        **_grid(patches),
    )
    train = make(count=data.train, split="train", fresh=data.fresh)
    test = make(count=data.test, split="test")
    return Data(train=train, test=test, names={"sign": road_signs.NAMES})


def _traffic_signs(data: TrafficSignsConfig, patches: PatchesConfig) -> Data:
    make = partial(traffic_signs.TrafficSigns, data.folder, seed=data.seed, **_grid(patches))
    train = make(split="train", augment=data.augment)
    return Data(train=train, test=make(split="test"), names={"sign": traffic_signs.NAMES})


def _grid(patches: PatchesConfig) -> dict[str, Any]:
    stride = patches.stride or patches.size
    return {"patch_size": patches.size, "stride": stride, "edge": patches.edge}


def _table(data: TableConfig, config: Config) -> Data:
    rows = read_table(data.csv, root=data.root, path=data.path, tasks=list(config.tasks))
    given = {name: task.names for name, task in config.tasks.items() if task.names is not None}
    encoded = encode_labels(rows, config.tasks, names=given)
    if any(row.split for row in rows):
        train = [i for i, row in enumerate(rows) if row.split == "train"]
        test = [i for i, row in enumerate(rows) if row.split == "test"]
        unused = sum(row.split == "val" for row in rows)
        if unused:
            raise DataError(
                f"{data.csv}: {unused} rows have 'val' in their column `split`, which nothing "
                "here uses: make them train or test"
            )
        if not train or not test:
            lacks = "train" if not train else "test"
            raise DataError(f"{data.csv}: no row has {lacks!r} in its column `split`")
    else:
        strata = [tuple(sorted(row.labels.items())) for row in rows]
        train, test = stratified_split(strata, test=data.test, seed=data.seed)
    opener = partial(open_source, patches=config.patches)
    first = opener(rows[0].path)
    if len(first.shape) == 1:  # features
        first.coords  # noqa: B018  what it lacks to say where its patches are it says now
        check_widths(opener(row.path) for row in rows)

    def part(numbers: list[int]) -> TableData:
        labels = [encoded.labels[i] for i in numbers]
        return TableData([rows[i] for i in numbers], labels=labels, open=opener)

    return Data(train=part(list(train)), test=part(list(test)), names=encoded.names)


def open_source(path: str | Path | Image, patches: PatchesConfig) -> PatchSource:
    """An image, slide or feature file as the patches that a config asks for."""
    return open_patches(
        path,
        patch_size=patches.size,
        stride=patches.stride,
        level=patches.level,
        mpp=patches.mpp,
        magnification=patches.magnification,
        edge=patches.edge,
        slide_mpp=patches.slide_mpp,
    )


def resolve(config: Config, data: Data) -> Config:
    """``config`` with what only the data knows filled in, so that a model can be built from it."""
    shape = data.train[0][0].shape
    encoder = config.encoder
    if (encoder.name == "projector") != (len(shape) == 1):
        kind = "features" if len(shape) == 1 else "pixels"
        raise ConfigError(
            f"encoder.name={encoder.name} but the data are {kind}: use projector for stored "
            "features and another encoder for images"
        )
    if encoder.inputs not in (None, shape[0]):
        raise ConfigError(f"encoder.inputs={encoder.inputs} but a patch of the data has {shape[0]}")
    # Here, and not where a config is read: what was trained so in the past can still be opened.
    warmup, epochs = config.train.warmup_epochs, config.train.epochs
    if warmup >= epochs:
        raise ConfigError(
            f"train.warmup={warmup:g} with train.epochs={epochs}: take fewer warm-up epochs than "
            "epochs"
        )
    tasks = {
        name: task.model_copy(update={"names": task.names or data.names.get(name)})
        for name, task in config.tasks.items()
    }
    update: dict[str, Any] = {"inputs": shape[0], **_start(encoder)}
    return config.model_copy(
        update={
            "data": _found_from_anywhere(config.data),
            "encoder": encoder.model_copy(update=update),
            "tasks": tasks,
        }
    )


def _start(encoder: EncoderConfig) -> dict[str, Any]:
    """Absolute path of the weights, and how pixels are scaled, as far as it is known yet."""
    update: dict[str, Any] = {}
    if encoder.weights is not None and not is_name(encoder.weights):
        update["weights"] = encoder.weights.resolve()
    if ":" not in encoder.name:  # a timm model is asked when it is built
        mean, std = normalisation(encoder.weights)
        update |= {"mean": encoder.mean or mean, "std": encoder.std or std}
    return update


def _found_from_anywhere(data: DataConfig) -> DataConfig:
    paths = {name: value.resolve() for name, value in data if isinstance(value, Path)}
    return data.model_copy(update=paths)


def build_model(config: Config) -> Net:
    """The model that a resolved config describes, with weights as they start."""
    select = config.select
    # the CNN gets the position as an additional channel of the image
    built = _encoder(config, extra=int(config.method == "cnn" and config.aggregate.position))
    encoder, dim = built.net, built.dim
    tasks = build_tasks(config.tasks)
    heads = {
        name: Head(dim, task.outputs, activation=task.activation, hidden=config.aggregate.head)
        for name, task in tasks.items()
    }
    common: dict[str, Any] = {
        "position": config.aggregate.position,
        "mean": built.mean,
        "std": built.std,
    }
    if config.method == "cnn":
        assert isinstance(encoder, ResNet)
        return CNN(encoder, heads, keep=select.keep, scale=config.cnn.scale, **common)
    common |= {"readout": _readout(config, dim, tasks), "slice_size": config.train.slice}
    if config.method == "dps":
        return _dps(config, encoder, dim, heads, common)
    ips: type[SelectingNet] = IPSNet if config.method.startswith("ips") else SelectingNet
    return (TopMIL if config.method == "topmil" else ips)(
        encoder,
        None if config.method == "topmil" else _aggregator(config, dim),
        heads,
        keep=select.keep,
        chunk=select.chunk,
        mode="random" if config.method in _RANDOM else select.mode,
        skip_blank=select.skip_blank,
        compile=select.compile,
        **common,
    )


def _aggregator(config: Config, dim: int) -> Aggregator:
    aggregate = config.aggregate
    if aggregate.name == "gated-attention":
        return GatedAttention(dim, tokens=len(config.tasks), hidden=aggregate.hidden)
    return CrossAttentionTransformer(
        dim,
        tokens=len(config.tasks),
        heads=aggregate.heads,
        inner=aggregate.inner,
        dropout=aggregate.dropout,
        attention_dropout=aggregate.attention_dropout,
    )


def _readout(config: Config, dim: int, tasks: Mapping[str, Task]) -> PatchReadout | None:
    if config.readout is None:
        return None
    task = tasks[config.readout]
    head = Head(dim, task.outputs, activation=task.class_activation, hidden=config.readout_head)
    return PatchReadout(head, task=config.readout, token=list(tasks).index(config.readout))


def _dps(
    config: Config, encoder: nn.Module, dim: int, heads: Mapping[str, Head], common: dict[str, Any]
) -> DPSNet:
    if config.select.keep is None:
        raise ConfigError("select.keep=null with method=dps, which selects: give a number")
    # the scorer is the encoder's first two stages, and starts as they do
    stem = _encoder(config, stages=2, plain=True).net
    assert isinstance(stem, ResNet)
    return DPSNet(
        encoder,
        _aggregator(config, dim),
        heads,
        ScoreMap(stem),
        keep=config.select.keep,
        scale=config.dps.scale,
        samples=config.dps.samples,
        sigma=config.dps.sigma,
        decay=config.dps.decay,
        gradient_clip=config.dps.clip,
        **common,
    )


def _encoder(
    config: Config, *, extra: int = 0, stages: int | None = None, plain: bool = False
) -> BuiltEncoder:
    encoder = config.encoder
    if encoder.inputs is None:
        raise ConfigError("encoder.inputs is not known yet: resolve the config with its data first")
    if config.method in ("cnn", "dps") and encoder.name not in ENCODERS:
        raise ConfigError(
            f"method={config.method} needs one of the encoders {', '.join(ENCODERS)}, not "
            f"{encoder.name}: choose one of these, or another method"
        )
    built = build_encoder(
        encoder.name,
        weights=encoder.weights,
        inputs=encoder.inputs + extra,
        stages=stages or encoder.stages,
        width=encoder.width,
        norm=encoder.norm and not plain,
        pool=encoder.pool,
        dim=encoder.dim,
    )
    built = replace(built, mean=encoder.mean or built.mean, std=encoder.std or built.std)
    for key, values in (("mean", built.mean), ("std", built.std)):
        if encoder.name != "projector" and len(values) not in (1, encoder.inputs):
            raise ConfigError(
                f"encoder.{key} has {len(values)} values for {encoder.inputs} channels: "
                "give one for each, or one for all"
            )
    side = getattr(built.net, "patch_shape", (None,))[-1]
    if encoder.name != "projector" and side not in (None, config.patches.size):
        raise ConfigError(
            f"patches.size={config.patches.size} but encoder.name={encoder.name} only accepts "
            f"patches of {side} px: set patches.size={side}"
        )
    return built
