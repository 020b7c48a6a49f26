"""What is learned: the section `tasks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import model_validator

from ips.config.section import Section, key
from ips.errors import shown

#: Metrics of each kind of task, the usual one first.
METRICS: dict[str, tuple[str, ...]] = {
    "multiclass": ("accuracy", "auc"),
    "multilabel": ("exact-match", "accuracy", "auc"),
    "binary": ("auc", "accuracy"),
    "ordinal": ("kappa", "accuracy", "auc"),
    "regression": ("r2", "pearson"),
    "survival": ("concordance",),
}
#: Losses of the kinds that have a choice, the usual one first.
LOSSES = {"regression": ("huber", "squared"), "survival": ("cox", "hazards")}

# Settings of some kinds only.
_OWN = {
    "regression": ("loss", "mean", "deviation"),
    "survival": ("loss", "time", "event", "cuts", "threshold"),
}
_CLASSES = ("classes", "names", "positive")


class TaskConfig(Section):
    """One prediction per image."""

    kind: Literal["multiclass", "multilabel", "binary", "ordinal", "regression", "survival"] = key(
        "multiclass",
        "Kind of label: one class (multiclass), any number (multilabel), yes or no (binary), a "
        "grade (ordinal), a number (regression), or a time until an event (survival)",
    )
    classes: int = key(2, "Number of classes", ge=1)
    metric: (
        Literal["accuracy", "exact-match", "auc", "kappa", "r2", "pearson", "concordance"] | None
    ) = key(
        None,
        "Metric; null for accuracy (multiclass), exact-match (multilabel), auc (binary), kappa "
        "(ordinal), r2 (regression), concordance (survival)",
    )
    names: list[str] | None = key(
        None,
        "Names of the classes, in the order of labels that are numbers, and of grades; null for "
        "those of the data",
    )
    positive: str | None = key(
        None, "Name of the positive class, if there are two classes; null for the second"
    )
    loss: Literal["huber", "squared", "cox", "hazards"] | None = key(
        None,
        "Loss: huber or squared of a regression, null for huber; cox, the partial likelihood "
        "within a batch, or hazards of time intervals of survival, null for cox",
    )
    mean: float | None = key(None, "Mean of the labels; null for that of the training images")
    deviation: float | None = key(
        None, "Standard deviation of the labels; null for that of the training images", gt=0
    )
    time: str | None = key(None, "Column of times; null for the one named like the task")
    event: str | None = key(
        None, "Column that says whether the event was observed (1) or the time is censored (0)"
    )
    cuts: list[float] | None = key(
        None,
        "Ends of the time intervals of loss hazards; null for the quartiles of the times of events",
        min_length=1,
    )
    threshold: float | None = key(
        None, "Risk above which an image is of high risk; null for the median in training"
    )

    def ordered(self, names: Sequence[str]) -> list[str]:
        """Names of the classes in the order of the model: the positive class last."""
        return sorted(names, key=lambda name: name == self.positive)

    @property
    def own_settings(self) -> list[str]:
        """Names of the settings that this kind of task has."""
        others = {*_CLASSES, *(name for names in _OWN.values() for name in names)}
        others -= set(_OWN.get(self.kind, _CLASSES))
        return [name for name in type(self).model_fields if name not in others]

    @property
    def has_classes(self) -> bool:
        return self.kind not in _OWN

    def columns(self, name: str) -> dict[str, str]:
        """Columns of a table with the labels of the task ``name``, and the setting of each."""
        if self.kind != "survival":
            return {name: f"tasks.{name}"}
        time = {name: f"tasks.{name}"} if self.time is None else {self.time: f"tasks.{name}.time"}
        return {**time, str(self.event): f"tasks.{name}.event"}

    @model_validator(mode="after")
    def _consistent(self) -> TaskConfig:
        count = 2 if self.kind == "binary" else self.classes
        self._only_own_settings()
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
        if self.metric is not None and self.metric not in METRICS[self.kind]:
            known = " or ".join(METRICS[self.kind])
            raise ValueError(f"metric={self.metric} with kind={self.kind}: use {known}")
        if self.kind in ("multiclass", "ordinal") and self.classes < 2:
            raise ValueError(f"kind={self.kind} needs at least 2 classes")
        if self.kind == "survival" and self.event is None:
            raise ValueError("a survival task needs two columns: name that of events as event")
        if self.cuts is not None and (self.cuts[0] <= 0 or self.cuts != sorted(set(self.cuts))):
            raise ValueError(f"cuts={self.cuts}: give ascending times above 0")
        return self

    def _only_own_settings(self) -> None:
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in self.own_settings and value != field.default:
                raise ValueError(f"{name}={shown(value)} with kind={self.kind}: leave it out")
        if self.loss is not None and self.loss not in LOSSES[self.kind]:
            known = " or ".join(LOSSES[self.kind])
            raise ValueError(f"loss={self.loss} with kind={self.kind}: use {known}")


def label_columns(tasks: Mapping[str, TaskConfig]) -> dict[str, str]:
    """Columns of a table that hold labels, and the setting that names each.

    >>> label_columns({"os": TaskConfig(kind="survival", event="died"), "grade": TaskConfig()})
    {'os': 'tasks.os', 'died': 'tasks.os.event', 'grade': 'tasks.grade'}
    """
    found: dict[str, str] = {}
    for name, task in tasks.items():
        for column, setting in task.columns(name).items():
            found.setdefault(column, setting)
    return found
