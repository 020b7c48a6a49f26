"""A CSV with a row for each predicted image, which the next command with that file continues.

Columns: ``path``, or the name of a group of images with one prediction; for each task
``answer_TASK`` and, if it has probabilities, ``probability_TASK_CLASS``; ``patches``, the number of
patches of the image; ``patch_size``, their side in full-resolution pixels; ``top_patches``, the
corners ``x y`` of the patches with the most attention, separated by semicolons, each after the name
of its image if there are several; ``error``, why an image could not be predicted;
``fingerprint``, which changes with the model, the file and the patch settings; where labels are
known ``truth_TASK`` and ``right_TASK``, 0 or 1.
"""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ips.errors import ConfigError, because, shown
from ips.explain import Explanation
from ips.files import atomic_write
from ips.tasks import Answer, Classification, Task

Truth = Mapping[str, Mapping[str, Answer]]

_TOP = 5  # patches whose corners are written
_SECONDS = 10.0  # between two writes


class PredictionFile:
    """The rows of a CSV, which is always whole on disk: it is replaced atomically.

    A killed process loses the rows of the last seconds at most. A row counts as done if it has no
    error and its fingerprint is still the same.

    Args:
        path: the file; rows that it has already are read.
        images: the images of the command, in the order of the rows.
        tasks: tasks of the model.
        truth: correct answer of each task, by image; None without labels.
        shares: files of shares of the images, whose rows are read, too.
    """

    def __init__(
        self,
        path: Path,
        images: Sequence[str],
        tasks: Mapping[str, Task],
        *,
        truth: Truth | None = None,
        shares: Sequence[Path] = (),
    ) -> None:
        self.path, self._images, self._tasks, self._truth = path, images, tasks, truth
        self._columns = ["path"]
        for name, task in tasks.items():
            self._columns += [
                f"answer_{name}",
                *(
                    f"probability_{name}_{label}"
                    for label in task.class_names
                    if task.has_probabilities
                ),
            ]
        self._columns += ["patches", "patch_size", "top_patches", "error", "fingerprint"]
        self._rows: dict[str, list[str]] = {}
        for file in (*shares, path):
            self._rows |= self._read(file)
        self._written = time.monotonic()

    def is_done(self, image: str, fingerprint: str) -> bool:
        """Whether the file has the prediction of this image already."""
        row = self._rows.get(image)
        return row is not None and row[-2:] == ["", fingerprint]

    def add(
        self,
        image: str,
        explanation: Explanation,
        *,
        answers: Mapping[str, Answer],
        fingerprint: str,
    ) -> None:
        """Add the row of a predicted image."""
        row = [image]
        for task, probabilities in explanation.class_probabilities.items():
            row += [_cell(answers[task]), *(f"{p:.9g}" for p in probabilities.values())]
        top = ";".join(f"{x} {y}" for x, y in explanation.coords[:_TOP].tolist())
        parts = explanation.source.parts
        if len(parts) > 1:
            names = [parts[number].title for number in explanation.part_numbers[:_TOP]]
            pairs = zip(names, top.split(";"), strict=True)
            top = ";".join(f"{name} {corner}" for name, corner in pairs)
        extent = ";".join(dict.fromkeys(str(part.extent) for part in parts if part.extent))
        self._put(image, [*row, str(explanation.patches), extent, top, "", fingerprint])

    def add_error(self, image: str, error: Exception) -> None:
        """Add the row of an image that could not be predicted."""
        empty = [""] * (len(self._columns) - 3)
        self._put(image, [image, *empty, str(error), ""])

    def columns(self, image: str) -> dict[str, list[float]] | None:
        """The columns of the prediction of each task (`ips.tasks`); None without a prediction."""
        row = self._rows.get(image)
        return None if row is None or row[-2] else self._numbers(row)

    def errors(self) -> dict[str, str]:
        """Why images could not be predicted, by image."""
        return {image: row[-2] for image, row in self._rows.items() if row[-2]}

    def _numbers(self, row: Sequence[str]) -> dict[str, list[float]]:
        found, start = {}, 1
        for name, task in self._tasks.items():
            end = start + 1 + len(task.class_names) * task.has_probabilities
            found[name] = [float(cell) for cell in row[start + task.has_probabilities : end]]
            start = end
        return found

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each task, the number of right answers, and that of answers with a label."""
        if self._truth is None:
            return {}
        rights = [self._right(row) for row in self._rows.values()]
        counts = {}
        for task in self._tasks:
            known = [right[task] for right in rights if task in right]
            if isinstance(self._tasks[task], Classification):
                counts[task] = sum(known), len(known)
        return counts

    def write(self) -> None:
        """Write all rows so far, atomically."""
        header = list(self._columns)
        if self._truth is not None:
            header += [f"{word}_{name}" for name in self._tasks for word in self._truth_words(name)]
        with (
            atomic_write(self.path) as stream,
            # A file name may hold bytes that are not valid Unicode.
            io.TextIOWrapper(
                stream, encoding="utf-8", errors="surrogateescape", newline=""
            ) as text,
        ):
            writer = csv.writer(text)
            writer.writerow(header)
            for image in self._images:
                if (row := self._rows.get(image)) is not None:
                    writer.writerow([*row, *self._truth_cells(row)])
        self._written = time.monotonic()

    def _put(self, image: str, row: list[str]) -> None:
        self._rows[image] = row
        if time.monotonic() - self._written >= _SECONDS:
            self.write()

    def _truth_cells(self, row: Sequence[str]) -> list[str]:
        if self._truth is None:
            return []
        truth, right = self._truth.get(row[0], {}), self._right(row)
        cells = []
        for task in self._tasks:
            cells.append(_cell(truth[task]) if task in truth else "")
            if len(self._truth_words(task)) > 1:
                cells.append(str(int(right[task])) if task in right else "")
        return cells

    def _truth_words(self, task: str) -> list[str]:
        """Columns with the truth of a task; a number is neither right nor wrong."""
        return ["truth", "right"] if isinstance(self._tasks[task], Classification) else ["truth"]

    def _right(self, row: Sequence[str]) -> dict[str, bool]:
        """Whether the answers of a row are right, for tasks with a label."""
        if row[-2] or self._truth is None:  # no answers
            return {}
        truth = self._truth.get(row[0], {})
        answers = {task: row[self._columns.index(f"answer_{task}")] for task in truth}
        return {
            task: answers[task] == _cell(answer)
            for task, answer in truth.items()
            if isinstance(self._tasks[task], Classification)
        }

    def _read(self, path: Path) -> dict[str, list[str]]:
        """The rows of the file, if there is one."""
        if not path.exists():
            return {}
        try:
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
                lines = [row for row in csv.reader(file, strict=True) if row]
        except (OSError, ValueError, csv.Error) as error:
            reason = because(error, remedy="give another file as --csv")
            raise ConfigError(f"{path}: is not a table of predictions {reason}") from error
        if not lines:
            return {}
        header, *rows = lines
        if header[0] != "path" or "fingerprint" not in header:
            raise ConfigError(
                f"{path}: exists, and is not a table of predictions: give another file as --csv"
            )
        others = sorted({row[0] for row in rows} - set(self._images))
        if others:
            raise ConfigError(
                f"{path}: has rows of {len(others)} other images, such as "
                f"{shown(others[0], quote=False)}: give another file as --csv, or delete it"
            )
        count = len(self._columns)
        if header[:count] != self._columns:
            raise ConfigError(
                f"{path}: has predictions of a model with other tasks or classes: give "
                "another file as --csv, or delete it"
            )
        return {row[0]: row[:count] for row in rows if len(row) == len(header) and self._whole(row)}

    def _whole(self, row: Sequence[str]) -> bool:
        """Whether a row has an error or all numbers; another one is predicted again."""
        try:
            return bool(row[len(self._columns) - 2]) or bool(self._numbers(row))
        except ValueError:
            return False


def share_file(path: Path, shard: tuple[int, int]) -> Path:
    """The file of one share of the images of ``path``.

    >>> share_file(Path("predictions.csv"), (2, 8)).name
    'predictions-2-of-8.csv'
    """
    return path.with_stem(f"{path.stem}-{shard[0]}-of-{shard[1]}")


def share_files(path: Path) -> list[Path]:
    """All files of shares of the images of ``path``."""
    name = re.compile(rf"{re.escape(path.stem)}-\d+-of-\d+{re.escape(path.suffix)}")
    return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name))


def _cell(answer: Answer) -> str:
    """One class, several separated by semicolons, or a number, as tables have them."""
    if isinstance(answer, float):
        return f"{answer:.9g}"  # a float32 has nine significant digits
    return answer if isinstance(answer, str) else ";".join(answer)
