"""Answers of all devices put together, so that each device counts what a single one would.

The loss of a step is that of the whole batch on every device. It depends on a device's own network
through the logits of its own images only, so the sum of the gradients of all devices is that of one
device with all images. DDP averages them instead, and so the gradient is multiplied by their number
where it enters a network. A loss need not be a mean over images, such as Cox's partial likelihood.

Letters: B images, T tokens, H heads, K patches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.localisation import ImageHits
from ips.models import Output
from ips.selection import Selection
from ips.training.batches import Batch
from ips.training.processes import gather


@dataclass(frozen=True)
class Part:
    """The answers to the images of a batch that one device had.

    Attributes:
        names: names of the images.
        labels: by task, ``(B, ...)``.
        output: output of the network.
        selection: the patches that were selected; None in training.
        hits: for each image, where attention is, by task; None if that is not asked for.
    """

    names: list[str]
    labels: dict[str, Tensor]
    output: Output
    selection: Selection | None = None
    hits: list[dict[str, ImageHits | None]] | None = None

    @classmethod
    def of(cls, batch: Batch, output: Output, **more: Any) -> Part:
        """The part of a batch."""
        return cls([source.name for source in batch.sources], batch.labels, output, **more)


def all_parts(part: Part | None, *, world: int, device: torch.device) -> list[Part]:
    """The parts of all ``world`` devices, in their order.

    ``part`` is None if this device has no image that counts.
    """
    if world == 1:
        return [] if part is None else [part]
    parts = gather(_mapped(lambda t: t.detach().cpu(), part))
    return [_mapped(lambda t: t.to(device), found) for found in parts if found is not None]


def whole_batch(
    parts: Sequence[Part], own: Output, *, rank: int, world: int, counted: bool
) -> tuple[Output, dict[str, Tensor]]:
    """Output and labels of the whole batch, with the gradient of a device's ``own`` part.

    Args:
        parts: see `all_parts`.
        own: output of this device.
        rank, world: number of this device, and how many there are.
        counted: whether the images of this device count, see `Batch`.
    """
    if world == 1:
        return own, parts[0].labels
    place = rank if counted else None  # devices without images are the last ones

    def join(get: Callable[[Output], Tensor | None]) -> Tensor | None:
        mine = get(own)
        if mine is None:
            return None
        tensors = [t for part in parts if (t := get(part.output)) is not None]
        if place is None:
            tensors[0] = tensors[0] + 0 * mine.sum()  # a gradient of zero, which DDP waits for
        else:
            tensors[place] = mine.clone()
            tensors[place].register_hook(lambda gradient: gradient * world)
        return torch.cat(tensors)

    def join_tasks(get: Callable[[Output], Mapping[str, Tensor] | None]) -> dict[str, Tensor]:
        joined = {}
        for task in get(own) or {}:
            tensor = join(lambda output, task=task: (get(output) or {})[task])  # type: ignore[misc]
            assert tensor is not None
            joined[task] = tensor
        return joined

    output = Output(
        logits=join_tasks(lambda output: output.logits),
        attention=_padded([part.output.attention for part in parts]),
        patch_logits=None,
        readout_logits=join(lambda output: output.readout_logits),
        lead_logits=join_tasks(lambda output: output.lead_logits) or None,
    )
    labels = {task: torch.cat([part.labels[task] for part in parts]) for task in parts[0].labels}
    return output, labels


def _padded(attention: Sequence[Tensor | None]) -> Tensor | None:
    """Attention ``(B, T, H, K)`` of all parts, with zeros up to the largest K."""
    found = [a for a in attention if a is not None]
    if not found:
        return None
    K = max(a.shape[-1] for a in found)
    return torch.cat([F.pad(a, (0, K - a.shape[-1])) for a in found])


def _mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """A value with all its tensors changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(change, entry) for key, entry in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: _mapped(change, getattr(value, f.name)) for f in fields(value)}
        return replace(value, **changed)
    return value
