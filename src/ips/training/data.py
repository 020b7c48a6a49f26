"""The data sets of a config."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from ips.config import (
    Config,
    MegapixelMNISTConfig,
    PatchesConfig,
    RoadSignsConfig,
    TableConfig,
    TrafficSignsConfig,
    label_columns,
)
from ips.data import traffic_signs
from ips.data.bags import GroupedData, bags_of, joined, labels_of_groups
from ips.data.labels import encode_labels
from ips.data.regions import Region
from ips.data.split import Split
from ips.data.synthetic import megapixel_mnist, road_signs
from ips.data.synthetic.digits import load_digits
from ips.data.synthetic.megapixel_mnist_authors import AuthorsMegapixelMNIST, is_authors_folder
from ips.data.synthetic.megapixel_mnist_files import SavedMegapixelMNIST, has_validation
from ips.data.table import Row, TableData, read_table
from ips.errors import ConfigError, DataError, IPSError
from ips.images import Channels
from ips.images.colour import channels_of
from ips.patches import ImageLike, PatchSource, open_patches, sampled
from ips.patches.features import check_widths
from ips.patches.filtered import PatchFilter
from ips.tasks import build_tasks
from ips.training.objects import object_problems, objects_of, table_objects
from ips.training.splitting import split_rows

Item = tuple[PatchSource, dict[str, Tensor]]


class DataSet(Protocol):
    """Images by number, each with its labels.

    May have a method ``set_epoch(epoch)`` and an attribute ``fresh``, which says whether the images
    change with the epoch, and the methods of `ips.training.objects`.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Item: ...


@dataclass(frozen=True, kw_only=True)
class Data:
    """The data sets of a config, and the class names of the tasks that the data names.

    Attributes:
        background: by task, the class that means that there is nothing to find, such as "no sign".
        labels: labels of each split of a table, to be checked before training.
        stored: whether the images are files, which can be checked before training.
        table: path, group (or "") and split of each row of a table.
        channels: channels of the patches of a table's images, see ``patches.channels``.
        files: file of each row.
        grouped: whether a group of a table has one prediction, see ``data.bags``.
        averaged: for each split, the images whose predictions are averaged, by group; empty
            unless ``data.bags`` is average.
    """

    train: DataSet
    validation: DataSet | None = None
    test: DataSet
    names: dict[str, list[str]] = field(default_factory=dict)
    background: dict[str, int] = field(default_factory=dict)
    labels: dict[Split, list[dict[str, Tensor]]] = field(default_factory=dict)
    stored: bool = False
    table: list[tuple[str, str, Split]] = field(default_factory=list)
    channels: Channels | None = None
    files: list[Path] = field(default_factory=list)
    grouped: bool = False
    averaged: dict[Split, dict[str, list[int]]] = field(default_factory=dict)

    def split(self, name: Split) -> DataSet:
        """The data set of a split that exists."""
        found = {"train": self.train, "validation": self.validation, "test": self.test}[name]
        assert found is not None
        return found

    def open_predicted(self, name: Split, number: int) -> PatchSource:
        """The patches of what has a prediction in a split: a bag, or a group that is averaged."""
        data, groups = self.split(name), self.averaged.get(name)
        if groups is None:
            return data[number][0]
        group, numbers = list(groups.items())[number]
        return joined(data, group, numbers)

    def predicted(self, name: Split) -> int:
        """Number of predictions of a split."""
        return len(self.averaged.get(name) or self.split(name))

    def predicted_splits(self) -> list[Split]:
        """The split of everything that has a prediction and is not for testing, in table order."""
        key = 1 if self.grouped else 0
        splits = {row[key]: row[2] for row in self.table}
        return [split for split in splits.values() if split != "test"]


class Sampled:
    """A data set with a random sample of at most ``count`` patches per image."""

    def __init__(self, data: DataSet, count: int, *, seed: int) -> None:
        self.data, self.count, self.seed = data, count, seed

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Item:
        source, labels = self.data[index]
        return sampled(source, self.count, seed=self.seed), labels

    @property
    def fresh(self) -> bool:
        return is_fresh(self.data)

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.data, epoch)

    def objects(self, index: int, task: str) -> list[Region] | None:
        return objects_of(self.data, index, task)

    def object_problems(self, index: int, source: PatchSource) -> list[DataError]:
        return object_problems(self.data, index, source)


def set_epoch(data: DataSet, epoch: int) -> None:
    """Set the epoch of a data set that changes from epoch to epoch."""
    if hasattr(data, "set_epoch"):
        data.set_epoch(epoch)


# Settings of patches that only the images of a table have.
_FOR_TABLES = (
    *("tissue", "include", "exclude"),
    *("level", "mpp", "magnification", "scale", "slide_mpp"),
)


def is_fresh(data: DataSet) -> bool:
    """Whether the images of a data set change from epoch to epoch."""
    return bool(getattr(data, "fresh", False))


def build_data(config: Config) -> Data:
    """Build the data sets that ``config.data`` describes."""
    patches = config.patches
    for name in _FOR_TABLES:
        if getattr(patches, name) is not None and not isinstance(config.data, TableConfig):
            raise ConfigError(
                f"patches.{name} with data.kind={config.data.kind}: only images of a table can be "
                f"filtered or read at another resolution: leave out patches.{name}"
            )
    data = _build(config)
    if (count := config.patches.sample) is None:
        return data
    sample = partial(Sampled, count=count, seed=config.train.seed)
    validation = data.validation and sample(data.validation)
    return replace(data, train=sample(data.train), validation=validation, test=sample(data.test))


def _build(config: Config) -> Data:
    patches = config.patches
    stride = patches.stride or patches.size
    options: dict[str, Any] = {"patch_size": patches.size, "stride": stride, "edge": patches.edge}
    match config.data:
        case MegapixelMNISTConfig() as data:
            _check_labels(config, megapixel_mnist.TASKS)
            if data.folder is not None and is_authors_folder(data.folder):
                authors = partial(AuthorsMegapixelMNIST, data.folder, **options)
                return Data(train=authors(split="train"), test=authors(split="test"))
            if data.folder is not None:
                saved = partial(SavedMegapixelMNIST, data.folder, **options)
                validation = saved(split="validation") if has_validation(data.folder) else None
                return Data(
                    train=saved(split="train"), validation=validation, test=saved(split="test")
                )
            options |= {"noise": data.noise, "noise_style": data.noise_style}
            options |= {"digits": load_digits(data.digits), "hold_out": data.validation > 0}
            return _drawn(partial(megapixel_mnist.MegapixelMNIST, data.side, **options), data)
        case RoadSignsConfig() as data:
            _check_labels(config, road_signs.TASKS)
            options |= {"width": data.width, "height": data.height}
            drawn = _drawn(partial(road_signs.RoadSigns, **options), data)
            names, background = {"sign": road_signs.NAMES}, {"sign": road_signs.NO_SIGN}
            return replace(drawn, names=names, background=background)
        case TrafficSignsConfig() as data:
            _check_labels(config, traffic_signs.TASKS)
            options |= {"seed": data.seed, "exclude": data.exclude, "validation": data.validation}
            signs = partial(traffic_signs.TrafficSigns, data.folder, **options)
            return Data(
                train=signs(split="train", augment=data.augment),
                validation=signs(split="validation") if data.validation else None,
                test=signs(split="test"),
                names={"sign": traffic_signs.NAMES},
                background={"sign": traffic_signs.NO_SIGN},
                stored=True,
            )
        case TableConfig() as data:
            return _table(data, config)


def _drawn(make: Callable[..., DataSet], data: MegapixelMNISTConfig | RoadSignsConfig) -> Data:
    """Images that are drawn on demand."""
    make = partial(make, seed=data.seed)
    return Data(
        train=make(count=data.train, split="train", fresh=data.fresh),
        validation=make(count=data.validation, split="validation") if data.validation else None,
        test=make(count=data.test, split="test"),
    )


def _check_labels(config: Config, labels: Mapping[str, tuple[str, int]]) -> None:
    """Check that every task is a label of the data set."""
    for name, task in config.tasks.items():
        if name not in labels:
            near = get_close_matches(name, labels, n=1)
            hint = f"did you mean {near[0]}?" if near else f"its labels are {', '.join(labels)}"
            raise ConfigError(f"tasks.{name}: {config.data.kind} has no such label: {hint}")
        kind, classes = labels[name]
        if (task.kind, task.classes) != (kind, classes):
            raise ConfigError(
                f"tasks.{name}: kind={task.kind} with classes={task.classes}, but this label of "
                f"{config.data.kind} needs kind={kind} with classes={classes}"
            )


def _table(data: TableConfig, config: Config) -> Data:
    tasks = list(config.tasks)
    options: dict[str, Any] = {"path": data.path, "group": data.group, "exclude": data.exclude}
    rows = read_table(data.csv, root=data.root, tasks=label_columns(config.tasks), **options)
    encoded = encode_labels(rows, config.tasks, source=data.csv)
    # headers suffice here: the filter would read every slide
    opener = partial(open_source, patches=config.patches, filter=PatchFilter())
    first = opener(rows[0].path)
    if len(first.shape) == 1:  # features
        first.coords  # noqa: B018  raises an error now, if it has no usable coordinates
        check_widths(opener(row.path) for row in rows)
    numbers = split_rows(rows, encoded.labels, data, config.tasks)
    channels = config.patches.channels
    if channels is None and len(first.shape) == 3:
        channels = common_channels(opener, [rows[i].path for i in numbers["train"]])
    patches = config.patches.model_copy(update={"channels": channels})
    located = table_objects(data, rows, tasks, opener)
    if located is not None and located.errors:
        raise located.errors[0]
    opener = partial(open_source, patches=patches, filter=patch_filter(patches))
    chosen = {
        name: TableData(
            [rows[i] for i in some],
            labels=[encoded.labels[i] for i in some],
            open=opener,
            located=located,
        )
        for name, some in numbers.items()
        if some
    }
    splits: dict[Split, TableData | GroupedData] = {**chosen}
    groups: dict[Split, dict[str, list[int]]] = {}
    if data.bags != "image":
        specs = build_tasks(config.tasks)
        labels = labels_of_groups(rows, encoded.labels, specs, table=data.csv, bags=data.bags)
        for name, images in chosen.items():
            groups[name] = bags_of(str(row.group) for row in images.rows)
            if data.bags == "group":
                each = [labels[group] for group in groups[name]]
                splits[name] = GroupedData(images, groups[name], labels=each)
    return Data(
        train=splits["train"],
        validation=splits.get("validation"),
        test=splits["test"],
        names=encoded.names,
        labels={name: list(split.labels) for name, split in splits.items()},
        stored=True,
        table=_placed(rows, numbers, root=data.root or data.csv.parent),
        channels=channels,
        files=[row.path for row in rows],
        grouped=data.bags != "image",
        averaged=groups if data.bags == "average" else {},
    )


def _placed(
    rows: Sequence[Row], numbers: Mapping[Split, Sequence[int]], *, root: Path
) -> list[tuple[str, str, Split]]:
    """Path, group and split of every row; paths inside ``root`` are relative to it."""
    split_of = {i: name for name, part in numbers.items() for i in part}
    placed = []
    for i, row in enumerate(rows):
        placed.append((file_name(row, root=root), row.group or "", split_of[i]))
    return placed


def file_name(row: Row, *, root: Path) -> str:
    """The path of a row's file, relative to ``root`` if it is inside."""
    path = row.path.relative_to(root) if row.path.is_relative_to(root) else row.path
    return path.as_posix()


def common_channels(open: Callable[[Path], PatchSource], paths: Sequence[Path]) -> Channels:
    """The channels that suit all of these images, by their headers.

    They are those of the images if all have the same number, ``rgb`` if some are grey and some in
    colour. Files that cannot be opened are left to `ips.training.checks`.
    """

    def count(path: Path) -> int | None:
        try:
            with open(path) as source:
                return source.shape[0]
        except IPSError:
            return None

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        counts = {number for number in pool.map(count, paths) if number is not None}
    if len(counts) == 1:
        return channels_of(*counts)
    return "rgb" if counts == {1, 3} else "as-is"


def patch_filter(patches: PatchesConfig) -> PatchFilter:
    """The filter of a config, which remembers what it has found."""
    return PatchFilter(tissue=patches.tissue, include=patches.include, exclude=patches.exclude)


def open_source(
    image: ImageLike, patches: PatchesConfig, *, filter: PatchFilter | None = None
) -> PatchSource:
    """Open an image, slide or feature file as the patches that a config describes.

    Args:
        filter: which patches to keep; by default as the config says.
    """
    source = open_patches(
        image,
        patch_size=patches.size,
        stride=patches.stride,
        level=patches.level,
        mpp=patches.mpp,
        magnification=patches.magnification,
        scale=patches.scale,
        edge=patches.edge,
        channels=patches.channels or "as-is",
        white=patches.white,
        slide_mpp=patches.slide_mpp,
    )
    keep = patch_filter(patches) if filter is None else filter
    return keep(source, image if isinstance(image, str | os.PathLike) else None)
