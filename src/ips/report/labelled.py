"""Predict the images of a table with labels, to report on images that no run was tested on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from ips.errors import DataError
from ips.inputs import find_images, read_labels
from ips.predictions import TaskPredictions, TestPredictions
from ips.predictor import Predictor
from ips.progress import advance, progress_bar


def predict_labelled(
    predictor: Predictor, table: Path, console: Console | None
) -> tuple[TestPredictions, list[str]]:
    """Predict the images that a CSV has a label for; see `ips.inputs.read_labels`.

    Returns:
        The predictions for the tasks that the table has labels of, and the paths of the images.
    """
    every = find_images([table], predictor.config)
    labels = read_labels(table, every, predictor.config)
    tasks = [name for name in predictor.tasks if any(name in found for found in labels.values())]
    images = [image for image in every if labels[image]]
    if not images:
        raise DataError(f"{table}: no image has a label: add some")
    names: list[str] = []
    probabilities: dict[str, list[list[float]]] = {task: [] for task in tasks}
    with progress_bar(console, transient=True) as bar:
        line = bar.add_task("images", total=len(images), note="")
        for image in images:
            explanation = predictor.predict(image)
            explanation.source.close()
            names.append(explanation.name)
            for task, rows in probabilities.items():
                columns = predictor.tasks[task].class_probabilities(explanation.probabilities[task])
                rows.append(columns.double().tolist())
            advance(bar, line)
    parts = []
    for task, rows in probabilities.items():
        spec = predictor.tasks[task]
        encoded = torch.stack([labels[image].get(task, spec.missing) for image in images])
        truth, known = spec.targets(encoded).numpy(), spec.known(encoded).numpy()
        parts.append(TaskPredictions(task, spec, truth, np.array(rows), known))
    return TestPredictions(names, parts), images
