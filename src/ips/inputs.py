"""The bags that a command is given, as files, folders and tables, and their labels.

A bag is an image, unless ``data.bags`` of the model puts the images of a patient together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ips.config import Config, TableConfig, TaskConfig, label_columns
from ips.data.bags import joint_labels
from ips.data.cells import is_table
from ips.data.labels import encode_labels
from ips.data.numbers import has_label
from ips.data.table import NO_GROUP, Row, group_column, read_cells
from ips.errors import DataError
from ips.files import absolute, folders_below, joined, list_files
from ips.images import is_image
from ips.patches.opening import FEATURE_SUFFIXES
from ips.patches.slide_finder import SlideFinder, address_key
from ips.tasks import build_tasks

# Endings of pictures that `ips explain` and `ips predict --figures` may write beside the images.
_PICTURES = (
    *("-overlay.png", "-closeup.png", "-gallery.png", "-classes.png", "-map.tif"),
    "-attention.png",
)


def list_images(folder: Path, *, features: bool = False) -> list[Path]:
    """List the images inside a folder, without those that ips has written itself.

    If there are none, those of all folders inside are listed, such as one for each label.

    Args:
        folder: the folder.
        features: list feature files, too.
    """

    def accept(path: Path) -> bool:
        if path.name.endswith(_PICTURES):
            return False
        return is_image(path) or (features and path.suffix.lower() in FEATURE_SUFFIXES)

    files = list_files([folder], accept=accept) or list_files(folders_below(folder), accept=accept)
    if not files:
        raise DataError(
            f"{folder}: there is no image in this folder: give the folder that holds the files, or "
            "the files"
        )
    return files


Bags = dict[str, list[str]]
"""The files of each bag, by its name: the path of an image, or the name of a group."""


def find_bags(given: Iterable[str | Path], config: Config, *, features: bool = True) -> Bags:
    """List the given files, those in given folders, and those that given CSVs name, each once.

    A CSV names files as that of the training does: in the column ``data.path``, relative to
    ``data.root`` or the folder of the CSV. Whether a given file exists is not checked.

    Every file is a bag, unless ``data.bags`` of the model is another. Then the images of a group of
    a CSV are one, and the images of each folder inside a given folder.
    """
    bags: Bags = {}
    seen: set[str] = set()
    for name in map(str, given):
        path = Path(name)
        if path.is_dir():
            files = list_images(path, features=features)
            found = [(str(file), _patient_folder(path, file)) for file in files]
        elif is_table(path):
            column = None if config.bags == "image" else _group_name(path, config)
            found = [(str(row.path), row.group) for row in _rows(path, config, group=column)]
        else:
            found = [(name, None)]
        for file, group in found:
            if file not in seen:
                seen.add(file)
                bag = group if group is not None and config.bags != "image" else file
                bags.setdefault(bag, []).append(file)
    return bags


def bag_images(name: str, files: list[str]) -> str | list[str]:
    """What `Predictor.predict` and `Predictor.open` take: the file, or those of a group."""
    return name if files == [name] else files


def bag_files(bags: Bags) -> list[str]:
    """The files of all bags."""
    return [file for files in bags.values() for file in files]


def _patient_folder(folder: Path, file: Path) -> str | None:
    """The folder of a file inside a given folder; None if it is directly in that."""
    return None if file.parent == folder else file.parent.relative_to(folder).as_posix()


def read_labels(table: str | Path, bags: Bags, config: Config) -> dict[str, dict[str, Tensor]]:
    """Read the labels of bags from a CSV, encoded as in training; see `find_bags`.

    A row belongs to the image with its path, or else to the image with its file name, if no other
    row and no other image has that. Bags and tasks without a label are left out. The labels of the
    images of a bag must agree.

    Returns:
        The label of each task, by bag.
    """
    path = Path(table)
    every = _rows(path, config)
    images = bag_files(bags)
    rows = _match(images, every)
    present = _present(config, every[0].labels) if every else []
    if every and not present:
        known = ", ".join(config.tasks)
        raise DataError(f"{path}: has no column for a task of the model: name one of {known}")
    if not rows:
        raise DataError(
            f"{path}: names none of the {len(images)} images, such as {images[0]}: write their "
            "paths or file names into it"
        )
    labels: dict[str, dict[str, Tensor]] = {bag: {} for bag in bags}
    for name in present:
        task = config.tasks[name]
        encoded = _encode(rows, name, task, path)
        number = {image: i for i, image in enumerate(encoded)}
        found = {bag: [number[f] for f in files if f in number] for bag, files in bags.items()}
        some = {bag: numbers for bag, numbers in found.items() if numbers}
        each = [{name: label} for label in encoded.values()]
        joint = joint_labels(some, each, build_tasks({name: task}), table=path)
        for bag, label in zip(some, joint, strict=True):
            labels[bag] |= label
    return labels


def read_groups(table: str | Path, bags: Bags, config: Config) -> list[str] | None:
    """The patient or other group of each bag; None if the table has no column of groups.

    The column is ``data.group`` of the training if the table has it, otherwise one called
    ``patient`` or the like. The table names all images, see `find_bags`.
    """
    path = Path(table)
    if (name := _group_name(path, config)) is None:
        return None
    images = [files[0] for files in bags.values()]
    rows = _match(images, _rows(path, config, group=name))
    return [str(rows[image].group) for image in images]


def _group_name(table: Path, config: Config) -> str | None:
    columns, _ = read_cells(table)
    name = config.data.group if isinstance(config.data, TableConfig) else None
    if name == NO_GROUP:
        return None
    if name in columns:
        return name
    labels = label_columns(config.tasks)
    return group_column(table, [column for column in columns if column not in labels])


def slide_finder(
    given: str | Path | SlideFinder | None, tables: Iterable[str | Path], config: Config
) -> SlideFinder:
    """What is known about the slides that feature files were extracted from.

    Args:
        given: folder of the slides, or a finder that also knows the size of patches.
        tables: CSVs of feature files, which may have a column ``slide``, as may that of the
            training; other files are ignored.
        config: configuration of the model.
    """
    if not isinstance(given, SlideFinder):
        given = SlideFinder(folder=None if given is None else Path(given))
    named = dict(given.named)
    if isinstance(config.data, TableConfig):
        with suppress(DataError):  # the table of the training may be gone
            named |= _named_slides([config.data.csv], config)
    named |= _named_slides(tables, config)
    return replace(given, named=named, white=config.patches.white)


def _named_slides(tables: Iterable[str | Path], config: Config) -> dict[str, Path]:
    """The slides that tables name: paths like those of the feature files, or names to look for."""
    named: dict[str, Path] = {}
    for table in filter(is_table, map(Path, tables)):
        column, root = _path_column(table, config)
        columns, lines = read_cells(table, [column])
        if "slide" in columns and column != "slide":
            for _, cells in lines:
                if cells[column] and cells["slide"]:
                    named[address_key(root / cells[column])] = root / cells["slide"]
    return named


def _path_column(table: Path, config: Config) -> tuple[str, Path]:
    """The column of a table with the files, and the folder that they are relative to."""
    if isinstance(data := config.data, TableConfig):
        return data.path, data.root or table.parent
    return "path", table.parent


def _rows(table: Path, config: Config, *, group: str | None = None) -> list[Row]:
    """The files of a table, with the labels that it has for the tasks of a config.

    Args:
        group: name of the column of patients or other groups, in which no cell is empty.
    """
    column, root = _path_column(table, config)
    columns, lines = read_cells(table, [column])
    tasks = {name: config.tasks[name] for name in _present(config, columns)}
    labels = label_columns(tasks)
    for line, cells in lines:
        if group is not None and cells[column] and not cells[group]:
            raise DataError(f"{table}, line {line}: nothing in column {group!r}: fill it in")
    return [
        Row(
            joined(root, cells[column]),
            {label: cells[label] for label in labels},
            None,
            group=None if group is None else cells[group],
            line=line,
        )
        for line, cells in lines
        if cells[column]
    ]


def _present(config: Config, columns: Collection[str]) -> list[str]:
    """The tasks whose label columns are all there."""
    return [name for name, task in config.tasks.items() if task.columns(name).keys() <= {*columns}]


def _match(images: Sequence[str], rows: Sequence[Row]) -> dict[str, Row]:
    """The row of each image that has one."""
    by_path = {absolute(row.path): row for row in rows}
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row.path.name].append(row)
    count = Counter(Path(image).name for image in images)
    found = {}
    for image in images:
        name = Path(image).name
        named = by_name[name]
        if match := by_path.get(absolute(Path(image))):
            found[image] = match
        elif len(named) == count[name] == 1:
            found[image] = named[0]
    return found


def _encode(rows: Mapping[str, Row], name: str, task: TaskConfig, table: Path) -> dict[str, Tensor]:
    """The labels of one task; an empty cell is a label only if there can be several or none."""
    multilabel = task.kind == "multilabel"
    labelled = {i: row for i, row in rows.items() if has_label(row, name, task) or multilabel}
    encoded = encode_labels(list(labelled.values()), {name: task}, source=table)
    return {image: labels[name] for image, labels in zip(labelled, encoded.labels, strict=True)}
