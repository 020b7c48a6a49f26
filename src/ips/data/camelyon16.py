"""CAMELYON16 (Sect. 4.2): slides of lymph nodes with and without metastases.

    training/normal/normal_001.tif ...    training/lesion_annotations/tumor_001.xml ...
    training/tumor/tumor_001.tif ...
    testing/images/test_001.tif ...       testing/lesion_annotations/test_001.xml ...
    testing/reference.csv

Known errors are corrected: ``normal_086`` shows a tumour, and later releases call it
``tumor_111``; ``test_049`` is a duplicate and left out; the annotation of ``test_114`` is
incomplete and not used.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ips.data.split import Split
from ips.data.table import write_csv
from ips.errors import DataError, because, shown

TASK = "tumor"

INCOMPLETE_ANNOTATIONS = frozenset({"test_114"})
"""Names of the slides with tumours that are not annotated."""

_RENAMED = {"normal_086": "tumor_111"}
_DUPLICATES = frozenset({"test_049"})
_TRAINING = [
    *(f"normal_{n:03}" for n in range(1, 161) if f"normal_{n:03}" not in _RENAMED),
    *(f"tumor_{n:03}" for n in range(1, 112)),
]
_TEST = [f"test_{n:03}" for n in range(1, 131) if f"test_{n:03}" not in _DUPLICATES]
_SPLITS: dict[Split, list[str]] = {"train": _TRAINING, "test": _TEST}
_FOLDERS = ("training/normal", "training/tumor", "testing/images")
_LABELS = {
    **dict.fromkeys(("normal", "negative", "0"), 0),
    **dict.fromkeys(("tumor", "tumour", "positive", "macro", "micro", "1"), 1),
}


@dataclass(frozen=True)
class Camelyon16Slide:
    """A slide; ``path`` is its slide or feature file, and ``tumor`` is its label, 0 or 1."""

    name: str
    path: Path
    tumor: int
    split: Split


@dataclass(frozen=True)
class Camelyon16:
    """The slides that were found, ordered by name, and the names of missing slides."""

    slides: list[Camelyon16Slide]
    missing: list[str]

    @property
    def missing_message(self) -> str | None:
        """One sentence about the missing slides; None if there are none."""
        if not self.missing:
            return None
        names = ", ".join(self.missing[:5])
        more = f" and {len(self.missing) - 5} more" if len(self.missing) > 5 else ""
        total = len(_TRAINING) + len(_TEST)
        return f"{len(self.missing)} of {total} slides are missing: {names}{more}"


def camelyon16_table(folder: str | Path, *, features: str | Path | None = None) -> Camelyon16:
    """List the slides of a folder, or their feature files, with label and split.

    With ``features``, only ``testing/reference.csv`` is needed in ``folder``.
    """
    folder = Path(folder)
    reference = folder / "testing" / "reference.csv"
    places = [folder / place for place in _FOLDERS] if features is None else [Path(features)]
    found = _files(places, suffix=".tif" if features is None else ".h5")
    if not found:
        wanted = "no slides in " + ", ".join(_FOLDERS) if features is None else "no feature files"
        raise DataError(
            f"{features or folder}: {wanted} with names of CAMELYON16, such as {_TRAINING[0]}: "
            "choose another folder"
        )
    labels = {name: int(name.startswith("tumor")) for name in _TRAINING}
    if any(name in found for name in _TEST):
        labels |= read_reference(reference)
    if unlabelled := [name for name in _TEST if name in found and name not in labels]:
        raise DataError(
            f"{reference}: no label for {len(unlabelled)} slides, such as {unlabelled[0]}: "
            "download the file again"
        )
    slides = [
        Camelyon16Slide(name, found[name], labels[name], split)
        for split, names in _SPLITS.items()
        for name in names
        if name in found
    ]
    missing = [name for names in _SPLITS.values() for name in names if name not in found]
    return Camelyon16(slides, missing)


def read_reference(path: str | Path) -> dict[str, int]:
    """Labels of the test slides by name, 1 for a tumour, in either published layout.

    One layout has no header, with the slide and its class in the first two columns. The other has
    the columns ``image``, ``type``, ``class`` and ``center``.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [[cell.strip() for cell in cells] for cells in csv.reader(file)]
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing: it has the labels of the test slides") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = because(error, remedy="download it again")
        raise DataError(f"{path}: not a readable CSV {reason}") from error
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
            found = " or ".join(map(shown, words)) or "not given"
            raise DataError(
                f"{path}: the class of {shown(cells[0])} is {found}, expected normal or tumor: "
                "download it again"
            )
        labels[Path(name).stem] = label
    return labels


def write_table(slides: Iterable[Camelyon16Slide], path: str | Path) -> None:
    """Write a CSV of paths, labels and splits, for ``data: {kind: table}`` in a config."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    rows = [(slide.path.resolve(), slide.tumor, slide.split) for slide in slides]
    write_csv(Path(path), ["path", TASK, "split"], rows)


def _files(folders: Iterable[Path], *, suffix: str) -> dict[str, Path]:
    """Files by slide name; if a slide has files with its old and new name, the new one counts."""
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
