"""A setting with its reason, and the settings of tasks and images that need no measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ips.advice.columns import is_multilabel, label_values, may_be_classes
from ips.advice.found import FoundData
from ips.advice.targets import is_measurement, label_groups, summary
from ips.config_io import override
from ips.data.labels import similar_labels
from ips.data.numbers import event_number
from ips.errors import DataError, shown
from ips.tasks import LOPSIDED

_FEW = 10  # images of a class


@dataclass(frozen=True)
class Choice:
    """A setting, its value and the reason for it.

    Attributes:
        key: names of its section and of itself; a task may have any name.
    """

    key: tuple[str, ...]
    value: Any
    reason: str = ""


def nested(choices: Iterable[Choice]) -> dict[str, Any]:
    """Settings as nested mappings.

    >>> nested([Choice(("patches", "size"), 64), Choice(("readout",), "grade")])
    {'patches': {'size': 64}, 'readout': 'grade'}
    """
    values: dict[str, Any] = {}
    for choice in choices:
        place = values
        *sections, key = choice.key
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = choice.value
    return values


def overridden(choices: Sequence[Choice], settings: Sequence[str]) -> list[Choice]:
    """The choices with settings of the command line instead of, or after, the chosen ones.

    >>> overridden([Choice(("augment", "kind"), "slides", "stains")], ["augment={kind: none}"])
    [Choice(key=('augment',), value={'kind': 'none'}, reason='as given with --set')]
    """
    values = override(nested(choices), settings)
    given = dict.fromkeys(tuple(setting.partition("=")[0].split(".")) for setting in settings)

    def replaced(key: tuple[str, ...]) -> bool:
        """Whether a section that the key is in, or the key itself, is given."""
        return any(key[:length] in given for length in range(1, len(key) + 1))

    result = [choice for choice in choices if not replaced(choice.key)]
    for key in given:
        if not replaced(key[:-1]):
            value: Any = values
            for part in key:
                value = value[part]
            result.append(Choice(key, value, "as given with --set"))
    return result


def split_counts(data: FoundData) -> dict[str, int]:
    """Number of images of train, val and test; made splits have the default shares."""
    counts = Counter(row.split for row in data.rows)
    total = len(data.rows)
    if not any(counts[name] for name in ("train", "val", "validation", "test")):
        test = round(0.2 * total)
        counts = Counter({"test": test, "train": total - test})
    val = counts["val"] + counts["validation"]
    if not val:
        val = round(0.2 * counts["train"])
        counts["train"] -= val
    return {"train": counts["train"], "val": val, "test": counts["test"]}


def task_choices(data: FoundData) -> tuple[list[Choice], list[str]]:
    """The settings of the tasks, and warnings about their labels."""
    choices, warnings = [], []
    rows = [row.labels for row in data.rows]
    for task, *event in label_groups(data.tasks, rows):
        cells = [row.labels[task] for row in data.rows if row.labels[task]]
        if event or (is_measurement(rows, task) and not may_be_classes(cells)):
            choices += _number_choices(task, event, data)
            continue
        multilabel = is_multilabel(cells)
        found = [
            label for cell in cells for label in (label_values(cell) if multilabel else [cell])
        ]
        counts = Counter(found)
        typos = similar_labels(counts)
        for label, meant in typos.items():
            found_as = f"column {task!r}: {shown(label)} ({counts[label]} images)"
            if label.lower() == meant.lower():
                warnings.append(f"{found_as} counts as {shown(meant)}")
                continue
            warnings.append(
                f"{found_as} may be meant as {shown(meant)}: correct it, or, if it is a class of "
                f"its own, add it to tasks.{task}.names and count it in tasks.{task}.classes"
            )
        names = _ordered([label for label in counts if label not in typos])
        if len(names) < 2:
            raise DataError(
                f"column {task!r}: all images have {shown(names[0])}, so there is nothing to "
                "learn: give another column with --label"
            )
        largest, smallest = (f(counts[name] for name in names) for f in (max, min))
        listed = ", ".join(f"{shown(name, quote=False)} {counts[name]}" for name in names[:8])
        more = ", ..." if len(names) > 8 else ""
        kind = "multilabel" if multilabel else "multiclass"
        choices += [
            Choice(("tasks", task, "kind"), kind, "any number of labels per image" * multilabel),
            Choice(("tasks", task, "classes"), len(names), f"images: {listed}{more}"),
            Choice(("tasks", task, "names"), names),
        ]
        if kind == "multiclass" and len(names) == 2 and largest >= LOPSIDED * smallest:
            usual = max(names, key=counts.__getitem__)
            share = largest / len(cells)
            reason = f"always answering {shown(usual)} would have an accuracy of {share:.2f}"
            choices.append(Choice(("tasks", task, "metric"), "auc", reason))
        if smallest < _FEW:
            rare = min(names, key=counts.__getitem__)
            warnings.append(
                f"column {task!r}: only {smallest} images of {shown(rare)}: add some, or merge "
                "it with another class; a score on so few says little"
            )
    return choices, warnings


def _number_choices(task: str, event: Sequence[str], data: FoundData) -> list[Choice]:
    """The settings of a regression, or of survival if there is a column of events."""
    rows = [row.labels for row in data.rows if all(row.labels[c] for c in (task, *event))]
    numbers = summary([row[task] for row in rows])
    kind = ("tasks", task, "kind")
    if not event:
        return [Choice(kind, "regression", f"numbers from {numbers}")]
    events = sum(event_number(row[event[0]]) == 1 for row in rows)
    reason = f"{events} events in {len(rows)} images, times from {numbers}"
    return [
        Choice(kind, "survival", reason),
        Choice(("tasks", task, "event"), event[0], "1 if the event was observed, 0 if censored"),
    ]


def _ordered(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name))
