"""Checks with clear messages, before and while a network runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ips.errors import ConfigError, PatchError
from ips.patches import PatchSource

PatchShape = tuple[int | None, ...]


def check_source(source: PatchSource, accepted: PatchShape | None) -> None:
    """Refuse an image without patches, or with patches of another shape than ``accepted``.

    Args:
        source: patches of an image.
        accepted: ``(C, h, w)`` or ``(D_in,)``, with None for any size; None accepts all shapes.
    """
    shape = source.shape
    if not len(source):
        raise PatchError(f"{source.name}: it has no patches")
    if accepted is None:
        return
    fits = [want in (None, got) for want, got in zip(accepted, shape, strict=False)]
    if len(accepted) == len(shape) and all(fits):
        return
    if len(accepted) == 1:
        expected = f"{accepted[0]} features: extract them with the encoder it was trained on"
    elif len(shape) == 3 and fits[0]:
        expected = f"patches of {accepted[2]} x {accepted[1]} px: set patches.size={accepted[1]}"
    else:
        expected = (
            f"images of {_channels(accepted[0] or 0)}: convert the image, or train a model for "
            "such images"
        )
    raise PatchError(f"{source.name}: patches are {_words(shape)}, but the model takes {expected}")


def check_scores(source: PatchSource, logits: Tensor) -> None:
    """Report scores that are not finite, instead of treating these patches as skipped."""
    skipped = (logits == -torch.inf).all(dim=1)
    if (broken := int((~logits.isfinite().all(dim=1) & ~skipped).sum())) > 0:
        raise PatchError(
            f"{source.name}: the scores of {broken} of {len(logits)} patches are not finite "
            "numbers: lower train.lr, or check its features for broken values"
        )


def check_slices(encoder: nn.Module, size: int) -> None:
    """Refuse to embed in slices if that changes the gradients."""
    for name, part in encoder.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
            raise ConfigError(
                f"train.slice={size}: {name} is a BatchNorm in training mode, whose statistics "
                "would be those of a slice rather than of the batch: set "
                "encoder.freeze_norm=true, or leave out train.slice"
            )


def check_batch(encoder: nn.Module, patches: int) -> None:
    """Refuse a training step with too few patches for a BatchNorm over embeddings."""
    if patches == 1 and any(
        isinstance(part, nn.BatchNorm1d) and part.training for part in encoder.modules()
    ):
        raise ConfigError(
            "a training step with a single patch (or image, for a CNN) is too small for a "
            "BatchNorm: set select.keep to 2 or more, or choose a train.batch that does not leave "
            "a single image over"
        )


def _words(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]} features"
    return f"{_channels(shape[0])} of {shape[2]} x {shape[1]} px"


def _channels(count: int) -> str:
    return f"{count} channel{'s' * (count > 1)}"
