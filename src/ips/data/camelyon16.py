"""CAMELYON16 (Sect. 4.2): slides of lymph nodes, with metastases or without.

    training/normal/normal_001.tif ...    training/lesion_annotations/tumor_001.xml ...
    training/tumor/tumor_001.tif ...
    testing/images/test_001.tif ...       testing/lesion_annotations/test_001.xml ...
    testing/reference.csv

What is known to be wrong with it is corrected: `normal_086` shows a tumour, and later releases call
it `tumor_111`; `test_049` is a duplicate and left out; not all tumour of `test_114` is outlined, so
it says nothing of where a model looks.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ips.data.regions import Region, read_tumour_regions
from ips.errors import DataError
from ips.files import atomic_write

TASK = "tumor"

_RENAMED = {"normal_086": "tumor_111"}
_DUPLICATES = frozenset({"test_049"})
_NOT_ALL_OUTLINED = frozenset({"test_114"})
_TRAINING = [
    *(f"normal_{n:03}" for n in range(1, 161) if f"normal_{n:03}" not in _RENAMED),
    *(f"tumor_{n:03}" for n in range(1, 112)),
]
_TEST = [f"test_{n:03}" for n in range(1, 131) if f"test_{n:03}" not in _DUPLICATES]
_FOLDERS = ("training/normal", "training/tumor", "testing/images")
_LABELS = {
    **dict.fromkeys(("normal", "negative", "0"), 0),
    **dict.fromkeys(("tumor", "tumour", "positive", "macro", "micro", "1"), 1),
}


@dataclass(frozen=True)
class Camelyon16Slide:
    """A slide, or the file of its features.

    Args:
        name: as later releases call it.
        path: of the file.
        tumor: 1 where it shows a tumour.
        split: the official one.
    """

    name: str
    path: Path
    tumor: int
    split: Literal["train", "test"]


@dataclass(frozen=True)
class Camelyon16:
    """The slides that there are, in the order of their names, and the names of those missing."""

    slides: list[Camelyon16Slide]
    missing: list[str]

    @property
    def remark(self) -> str | None:
        """What is missing in a sentence, None where nothing is."""
        if not self.missing:
            return None
        names = ", ".join(self.missing[:5])
        more = f" and {len(self.missing) - 5} more" if len(self.missing) > 5 else ""
        total = len(_TRAINING) + len(_TEST)
        return f"{len(self.missing)} of {total} slides are missing: {names}{more}"


def camelyon16_table(folder: str | Path, *, features: str | Path | None = None) -> Camelyon16:
    """The slides of the data set with their labels and the official split.

    Args:
        folder: of the data set. With ``features`` only its ``testing/reference.csv`` is needed.
        features: folder of feature files that are called as the slides.
    """
    folder = Path(folder)
    places = [folder / place for place in _FOLDERS] if features is None else [Path(features)]
    found = _files(places, suffix=".tif" if features is None else ".h5")
    if not found:
        wanted = "no slides in its " + ", ".join(_FOLDERS) if features is None else "no features"
        raise DataError(
            f"{features or folder}: {wanted} that are called as those of CAMELYON16, such as "
            f"{_TRAINING[0]}: give another folder"
        )
    labels = {name: int(name.startswith("tumor")) for name in _TRAINING}
    if any(name in found for name in _TEST):
        labels |= read_reference(folder / "testing" / "reference.csv")
    unlabelled = [name for name in _TEST if name in found and name not in labels]
    if unlabelled:
        raise DataError(
            f"{folder / 'testing' / 'reference.csv'}: no label for {len(unlabelled)} slides, "
            f"{unlabelled[0]} first: get the file again"
        )
    splits: list[tuple[Literal["train", "test"], list[str]]] = [
        ("train", _TRAINING),
        ("test", _TEST),
    ]
    slides = [
        Camelyon16Slide(name, found[name], labels[name], split)
        for split, names in splits
        for name in names
        if name in found
    ]
    missing = [name for name in (*_TRAINING, *_TEST) if name not in found]
    return Camelyon16(slides, missing)


def read_reference(path: str | Path) -> dict[str, int]:
    """The labels of the test slides by name, 1 for a tumour, from either published layout.

    One has no header and names the slide first and its class second; the other has the columns
    ``image``, ``type``, ``class`` and ``center``.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in cells] for cells in csv.reader(file)]
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: it has the labels of the test slides") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable CSV ({error}): get the file again") from error
    lines = [cells for cells in lines if any(cells)]
    columns = [0, 1]
    if lines and (header := [cell.lower() for cell in lines[0]])[0] == "image":
        columns = [0, *(header.index(word) for word in ("class", "type") if word in header)]
        del lines[0]
    labels: dict[str, int] = {}
    for cells in lines:
        name, *words = (cells[column].lower() for column in columns if column < len(cells))
        label = next((_LABELS[word] for word in words if word in _LABELS), None)
        if label is None:
            raise DataError(
                f"{path}: the class of {cells[0]} is {' or '.join(words) or 'not given'}, expected "
                "normal or tumor: get the file again"
            )
        labels[Path(name).stem] = label
    return labels


def write_table(slides: Iterable[Camelyon16Slide], path: str | Path) -> None:
    """A CSV of paths, labels and splits that ``data: {kind: table}`` trains on."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["path", TASK, "split"])
    lines.writerows([str(slide.path.resolve()), slide.tumor, slide.split] for slide in slides)
    with atomic_write(path) as stream:
        stream.write(text.getvalue().encode())


def camelyon16_regions(folder: str | Path, slide: Camelyon16Slide) -> list[Region] | None:
    """Where tumour is on a slide; None where that is not known, nothing where there is none."""
    if slide.name in _NOT_ALL_OUTLINED:
        return None
    if not slide.tumor:
        return []
    part = "training" if slide.split == "train" else "testing"
    annotations = Path(folder) / part / "lesion_annotations"
    names = [slide.name, *(old for old, new in _RENAMED.items() if new == slide.name)]
    files = [file for file in sorted(annotations.glob("*.xml")) if file.stem.lower() in names]
    if not files:
        raise DataError(
            f"{annotations}: no {slide.name}.xml, though the slide shows a tumour: get the "
            "annotations again"
        )
    return read_tumour_regions(files[0])


def _files(folders: Iterable[Path], *, suffix: str) -> dict[str, Path]:
    """Files by the name of their slide; of one under both of its names the later name counts."""
    pattern = re.compile(r"(normal|tumor|test)_\d{3}")
    found: dict[str, Path] = {}
    for folder in folders:
        for file in sorted(folder.glob("*")) if folder.is_dir() else ():
            name = file.stem.lower()
            if file.suffix.lower() == suffix and pattern.fullmatch(name):
                if name in _RENAMED:
                    found.setdefault(_RENAMED[name], file)
                else:
                    found[name] = file
    return found
