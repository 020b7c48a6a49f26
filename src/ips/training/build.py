"""From a config to the parts: data sets, tasks, the model. Plain functions, nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from torch import nn

from ips.config import Config, MegapixelMNISTConfig, PatchesConfig, TableConfig, TaskConfig
from ips.data.megapixel_mnist import TASKS, MegapixelMNIST
from ips.data.megapixel_mnist_files import open_megapixel_mnist
from ips.data.split import stratified_split
from ips.data.table import TableData, encode_labels, read_table
from ips.errors import ConfigError, DataError
from ips.models import IPSNet
from ips.nn import (
    ENCODERS,
    Aggregator,
    CrossAttentionTransformer,
    FeatureProjector,
    GatedAttention,
    Head,
    PatchReadout,
)
from ips.patches import FeatureBag, PatchSource, open_patches
from ips.patches.features import check_widths
from ips.training.loading import DataSet
from ips.training.tasks import Task
from ips.training.weights import load_weights


@dataclass(frozen=True)
class Data:
    """Training and test images, and what their classes are called where the data says so."""

    train: DataSet
    test: DataSet
    names: dict[str, list[str]]


def build_data(config: Config) -> Data:
    """The data sets that ``config.data`` describes."""
    if isinstance(config.data, MegapixelMNISTConfig):
        _check_labels(config.tasks)
        return _megapixel_mnist(config.data, config.patches)
    return _table(config.data, config)


def _check_labels(tasks: Mapping[str, TaskConfig]) -> None:
    """Megapixel MNIST has four labels, and a task is one of those."""
    for name, task in tasks.items():
        if name not in TASKS:
            near = get_close_matches(name, TASKS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(TASKS)}"
            raise ConfigError(f"tasks.{name}: megapixel-mnist has no such label: {hint}")
        kind, classes = TASKS[name]
        if (task.kind, task.classes) != (kind, classes):
            raise ConfigError(
                f"tasks.{name}: kind={task.kind} with classes={task.classes}, but this label of "
                f"megapixel-mnist needs kind={kind} with classes={classes}"
            )


def _megapixel_mnist(data: MegapixelMNISTConfig, patches: PatchesConfig) -> Data:
    stride = patches.stride or patches.size
    if data.folder is not None:
        saved = partial(
            open_megapixel_mnist,
            data.folder,
            patch_size=patches.size,
            stride=stride,
            edge=patches.edge,
        )
        return Data(saved(split="train"), saved(split="test"), {})
    make = partial(
        MegapixelMNIST,
        data.side,
        seed=data.seed,
        noise=data.noise,
        patch_size=patches.size,
        stride=stride,
        edge=patches.edge,
        digits=data.digits,
    )
    train = make(count=data.train, split="train", fresh=data.fresh)
    return Data(train, make(count=data.test, split="test"), {})


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
    if isinstance(first, FeatureBag):
        first.coords  # noqa: B018  what it lacks to say where its patches are it says now
        bags = (opener(row.path) for row in rows)
        check_widths(bag for bag in bags if isinstance(bag, FeatureBag))

    def part(numbers: list[int]) -> TableData:
        labels = [encoded.labels[i] for i in numbers]
        return TableData([rows[i] for i in numbers], labels=labels, open=opener)

    return Data(part(list(train)), part(list(test)), encoded.names)


def open_source(path: str | Path, patches: PatchesConfig) -> PatchSource:
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
            f"encoder.name={encoder.name} but the data are {kind}: take projector for stored "
            "features and a ResNet for images"
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
    update = {"inputs": shape[0], "weights": _absolute(encoder.weights)}
    return config.model_copy(
        update={
            "data": _found_from_anywhere(config.data),
            "encoder": encoder.model_copy(update=update),
            "tasks": tasks,
        }
    )


def _found_from_anywhere(
    data: MegapixelMNISTConfig | TableConfig,
) -> MegapixelMNISTConfig | TableConfig:
    paths = {
        name: _absolute(value) for name, value in data if isinstance(value, Path | None) and value
    }
    return data.model_copy(update=paths)


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.resolve()


def build_task(task: TaskConfig) -> Task:
    """A task with its loss, activation and metric."""
    return Task(kind=task.kind, classes=task.classes, score=task.metric)


def build_model(config: Config) -> IPSNet:
    """The model that a resolved config describes, with weights as they start."""
    encoder, dim = _encoder(config)
    aggregate = config.aggregate
    aggregator: Aggregator
    if aggregate.name == "cross-attention":
        aggregator = CrossAttentionTransformer(
            dim,
            tokens=len(config.tasks),
            heads=aggregate.heads,
            inner=aggregate.inner,
            dropout=aggregate.dropout,
            attention_dropout=aggregate.attention_dropout,
        )
    else:
        aggregator = GatedAttention(dim, tokens=len(config.tasks), hidden=aggregate.hidden)
    tasks = {name: build_task(task) for name, task in config.tasks.items()}
    heads = {
        name: Head(dim, task.outputs, activation=task.activation) for name, task in tasks.items()
    }
    readout = None
    if config.readout is not None:
        task = tasks[config.readout]
        # fc 128, ReLU, fc classes: Table 8, the column of megapixel MNIST
        head = Head(dim, task.outputs, activation=task.activation, hidden=[128])
        readout = PatchReadout(head, task=config.readout, token=list(tasks).index(config.readout))
    return IPSNet(
        encoder,
        aggregator,
        heads,
        keep=config.select.keep,
        chunk=config.select.chunk,
        mode=config.select.mode,
        position=aggregate.position,
        skip_blank=config.select.skip_blank,
        readout=readout,
        mean=config.encoder.mean,
        std=config.encoder.std,
        slice_size=config.train.slice,
        compile=config.select.compile,
    )


def _encoder(config: Config) -> tuple[nn.Module, int]:
    encoder = config.encoder
    if encoder.inputs is None:
        raise ConfigError("encoder.inputs is not known yet: resolve the config with its data first")
    if encoder.name == "projector":
        if encoder.weights is not None:
            raise ConfigError(
                f"encoder.weights={encoder.weights} with encoder.name=projector, which starts "
                "without any: leave out encoder.weights"
            )
        return FeatureProjector(encoder.inputs, dim=encoder.dim), encoder.dim
    for key in ("mean", "std"):
        values = getattr(encoder, key)
        if len(values) not in (1, encoder.inputs):
            raise ConfigError(
                f"encoder.{key} has {len(values)} values for {encoder.inputs} channels: "
                "give one for each, or one for all"
            )
    net = ENCODERS[encoder.name](
        stages=encoder.stages,
        width=encoder.width,
        channels=encoder.inputs,
        norm=encoder.norm,
        pool=encoder.pool,
    )
    if encoder.weights is not None:
        load_weights(net, encoder.weights)
    return net, net.dim
