"""Made-up explanations, for tests of figures and exports."""

from __future__ import annotations

import numpy as np
import torch

from ips.explain import Explanation
from ips.patches import PatchSource


def explained(
    source: PatchSource,
    *,
    keep: int = 3,
    classes: int | None = None,
    tasks: tuple[str, ...] = ("grade",),
    names: list[str] | None = None,
    title: str = "a title",
) -> Explanation:
    """An explanation as a predictor would make it, with random numbers."""
    if names is None and classes is not None:
        names = [str(number) for number in range(classes)]
    rng = np.random.default_rng(0)
    attention = {task: rng.dirichlet(np.full(len(source), 0.3)) for task in tasks}
    mean = np.mean(list(attention.values()), axis=0)
    indices = np.argsort(-mean)[:keep]
    scores = None if classes is None else torch.from_numpy(rng.random((len(indices), classes)))
    return Explanation(
        name=source.name,
        logits={},
        probabilities={},
        indices=torch.from_numpy(indices),
        coords=source.coords[indices],
        extent=source.extent,
        attention=torch.from_numpy(mean[indices] / mean[indices].sum()),
        task_attention={task: torch.from_numpy(a[indices]) for task, a in attention.items()},
        patch_probabilities=scores,
        patches=len(source),
        source=source,
        all_attention=attention,
        class_probabilities={task: {"low": 0.25, "<high>": 0.75} for task in tasks},
        title=title,
        patch_classes=names,
    )
