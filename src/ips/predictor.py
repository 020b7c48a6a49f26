"""A trained model for people: give it a file, get an answer and where it was found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ips.config import Config
from ips.models import IPSNet, Prediction
from ips.patches import PatchSource
from ips.training import load_model, open_source


class Predictor:
    """The model of a run, and how it was taught to cut an image into patches.

    Args:
        net: a trained model.
        config: that it was trained with.
    """

    def __init__(self, net: IPSNet, config: Config) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net, self.config = net.to(device).eval(), config

    def open(self, path: str | Path) -> PatchSource:
        """The patches of a file, as the model was trained on them."""
        return open_source(path, self.config.patches)

    def predict(self, image: str | Path | PatchSource) -> Prediction:
        """What the model says of an image file, or of patches that are open already."""
        source = self.open(image) if isinstance(image, str | Path) else image
        return self.net.predict(source, load="lazy")

    def class_name(self, task: str, number: int) -> str:
        """What class ``number`` of ``task`` is called."""
        names = self.config.tasks[task].names
        return names[number] if names is not None else str(number)

    @property
    def readout_names(self) -> list[str] | None:
        """What the classes of patches are called; None for a model without a read-out."""
        task = self.config.readout
        if task is None:
            return None
        return [self.class_name(task, number) for number in range(self._classes(task))]

    def answer(self, task: str, probabilities: Tensor) -> str | list[str]:
        """The likeliest class; of a multi-label task, all those at 0.5 or more."""
        kind = self.config.tasks[task].kind
        if kind == "multilabel":
            return [self.class_name(task, i) for i, p in enumerate(probabilities) if p >= 0.5]
        number = int(probabilities[0] >= 0.5) if kind == "binary" else int(probabilities.argmax())
        return self.class_name(task, number)

    def by_name(self, task: str, probabilities: Tensor) -> dict[str, float]:
        """Probability of each class, by its name."""
        values = [float(p) for p in probabilities]
        if self.config.tasks[task].kind == "binary":
            values = [1 - values[0], values[0]]
        return {self.class_name(task, number): p for number, p in enumerate(values)}

    def title(self, prediction: Prediction, labels: Mapping[str, Tensor] | None = None) -> str:
        """What is predicted, and what is true where that is known, in one line."""
        parts = []
        for task, probabilities in prediction.probabilities.items():
            text = f"{task} {_join(self.answer(task, probabilities))}"
            if labels is not None:
                text += f" ({_join(self._truth(task, labels[task]))})"
            parts.append(text)
        return f"{prediction.name}: {', '.join(parts)}" + (" (true)" if labels is not None else "")

    def _truth(self, task: str, label: Tensor) -> str | list[str]:
        kind = self.config.tasks[task].kind
        if kind == "multilabel":
            return [self.class_name(task, i) for i, there in enumerate(label) if there]
        return self.class_name(task, int(label))

    def _classes(self, task: str) -> int:
        return max(self.config.tasks[task].classes, 2)


def _join(answer: str | list[str]) -> str:
    return answer if isinstance(answer, str) else "+".join(answer) or "none"


def load(run: str | Path) -> Predictor:
    """The predictor of a run folder.

    >>> predictor = load("runs/demo")  # doctest: +SKIP
    >>> predictor.predict("image.png").probabilities["majority"]  # doctest: +SKIP
    """
    net, config = load_model(Path(run))
    return Predictor(net, config)
