"""Several predictions as one: those of several models, or for several images of a patient.

Letters: K patches that any model selected, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ips.explain.explanation import Explanation
from ips.models import Screened
from ips.patches import PatchSource
from ips.statistics import Bools


def average_explanations(explanations: Sequence[Explanation]) -> Explanation:
    """Average probabilities and attention; the selected patches are those of any model.

    A patch that a model did not select has no attention from that model. The class probabilities
    of a patch are the mean over the models that selected it.
    """
    first = explanations[0]
    indices = torch.cat([e.indices.cpu() for e in explanations]).unique()  # (K,), ascending
    places = [torch.searchsorted(indices, e.indices.cpu()) for e in explanations]

    def spread(values: Sequence[Tensor]) -> Tensor:
        """Mean over the models of values per selected patch, 0 where a model has none."""
        total = torch.zeros(len(indices), *values[0].shape[1:], dtype=torch.float64)
        for place, value in zip(places, values, strict=True):
            total.index_add_(0, place, value.detach().cpu().double())
        return total / len(explanations)

    attention = spread([e.attention for e in explanations])
    order = attention.argsort(descending=True, stable=True)
    patch_probabilities = None
    if first.patch_probabilities is not None:
        known = [e.patch_probabilities for e in explanations if e.patch_probabilities is not None]
        chosen_by = spread([torch.ones(len(p)) for p in places])
        patch_probabilities = (spread(known) / chosen_by[:, None])[order]
    coords = np.zeros((len(indices), 2), dtype=np.int64)
    for place, e in zip(places, explanations, strict=True):
        coords[place.numpy()] = e.coords
    return replace(
        _mean_answers(explanations),
        indices=indices[order],
        coords=coords[order.numpy()],
        attention=attention[order],
        task_attention={
            t: spread([e.task_attention[t] for e in explanations])[order]
            for t in first.task_attention
        },
        patch_probabilities=patch_probabilities,
        all_attention={
            t: np.mean([e.all_attention[t] for e in explanations], axis=0)
            for t in first.all_attention
        },
        screened=_screened(explanations, lambda scored: np.any(scored, axis=0)),
    )


def _screened(
    explanations: Sequence[Explanation], combine: Callable[[list[Bools]], Bools]
) -> Screened | None:
    """The patches that were scored, and the lowest recall; None if no screen left out any."""
    found = [e.screened for e in explanations if e.screened is not None]
    if not found:
        return None
    masks = [
        np.ones(e.patches, dtype=np.bool_) if e.screened is None else e.screened.scored
        for e in explanations
    ]
    recall = min((screened.recall for screened in found), key=lambda recall: recall.attention.value)
    return Screened(combine(masks), recall)


def join_explanations(explanations: Sequence[Explanation], source: PatchSource) -> Explanation:
    """Average the predictions for several images; ``source`` is the bag of all of them.

    The attention of an image is divided by the number of images, so that the sum stays 1.
    """
    first, count = explanations[0], len(explanations)
    starts = np.cumsum([0, *(e.patches for e in explanations)]).tolist()
    total = torch.cat([e.attention.detach().cpu() for e in explanations]) / count  # (K,)
    order = total.argsort(descending=True, stable=True)
    indices = [e.indices.cpu() + start for e, start in zip(explanations, starts, strict=False)]
    chosen = torch.cat(indices)[order]
    scores = [e.patch_probabilities for e in explanations if e.patch_probabilities is not None]
    return replace(
        _mean_answers(explanations),
        name=source.name,
        indices=chosen,
        coords=source.coords[chosen.numpy()],
        extent=source.extent,
        attention=total[order],
        task_attention={
            t: torch.cat([e.task_attention[t].detach().cpu() for e in explanations])[order] / count
            for t in first.task_attention
        },
        patch_probabilities=torch.cat([s.cpu() for s in scores])[order] if scores else None,
        patches=len(source),
        source=source,
        all_attention={
            t: np.concatenate([e.all_attention[t] for e in explanations]) / count
            for t in first.all_attention
        },
        screened=_screened(explanations, np.concatenate),
    )


def _mean_answers(explanations: Sequence[Explanation]) -> Explanation:
    """The first explanation with the mean logits and probabilities of all."""
    first = explanations[0]
    return replace(
        first,
        logits={t: _mean([e.logits[t] for e in explanations]) for t in first.logits},
        probabilities={
            t: _mean([e.probabilities[t] for e in explanations]) for t in first.probabilities
        },
        class_probabilities={
            task: {
                name: float(np.mean([e.class_probabilities[task][name] for e in explanations]))
                for name in classes
            }
            for task, classes in first.class_probabilities.items()
        },
    )


def _mean(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(tensors)).mean(dim=0)
