"""Do a model, an image and the machine go together?"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ips.errors import ConfigError, PatchError
from ips.patches import PatchSource


def check_source(encoder: nn.Module, source: PatchSource, *, extra: int = 0) -> None:
    """Whether ``encoder`` can look at these patches; if not, say what it can look at."""
    if not len(source):
        raise PatchError(f"{source.name}: there is no patch in it to look at")
    if (accepted := getattr(encoder, "patch_shape", None)) is None:
        return
    if len(accepted) == 1 and source.shape != accepted:
        raise PatchError(
            f"{source.name}: patches are {_words(source.shape)}, but the model takes "
            f"{accepted[0]} features: extract them with the encoder it was trained on"
        )
    if len(accepted) == 1:
        return
    channels = accepted[0] - extra
    if len(source.shape) != 3 or source.shape[0] != channels:
        raise PatchError(
            f"{source.name}: patches are {_words(source.shape)}, but the model takes images "
            f"of {channels} channel{'s' * (channels > 1)}: convert the image, or train a "
            "model for such images"
        )
    if accepted[1] is not None and source.shape[1:] != accepted[1:]:
        raise PatchError(
            f"{source.name}: patches are {_words(source.shape)}, but the model takes patches of "
            f"{accepted[2]} x {accepted[1]} px: set patches.size={accepted[1]}"
        )


def check_scores(source: PatchSource, logits: Tensor) -> None:
    """A patch whose score is no finite number is a fault to be told, not a patch to be left out."""
    passed_over = (logits == -torch.inf).all(dim=1)
    if (broken := int((~logits.isfinite().all(dim=1) & ~passed_over).sum())) > 0:
        raise PatchError(
            f"{source.name}: the scores of {broken} of {len(logits)} patches are not finite "
            "numbers: lower train.lr, or look for broken values in its features"
        )


def check_slices(encoder: nn.Module, size: int) -> None:
    """Whether embedding slice by slice gives the gradients of embedding all at once."""
    for name, part in encoder.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training:
            raise ConfigError(
                f"train.slice={size}: {name} is a BatchNorm in training mode, whose statistics "
                "would be those of a slice rather than of the batch: set "
                "encoder.freeze_norm=true, or leave train.slice out"
            )


def check_batch(encoder: nn.Module, patches: int) -> None:
    """Whether a step has patches enough for the statistics of a BatchNorm over embeddings."""
    if patches == 1 and any(
        isinstance(part, nn.BatchNorm1d) and part.training for part in encoder.modules()
    ):
        raise ConfigError(
            "a step with a single patch (or image, for a CNN) has no statistics for a BatchNorm: "
            "take select.keep of 2 or more, or a train.batch that leaves no image over"
        )


def _words(shape: tuple[int, ...]) -> str:
    if len(shape) == 1:
        return f"{shape[0]} features"
    return f"{shape[0]} channel{'s' * (shape[0] > 1)} of {shape[2]} x {shape[1]} px"


def memory_format(encoder: nn.Module) -> torch.memory_format:
    """Channels innermost, which is how convolutions run fastest, where that is safe.

    On a CPU the gradient of a 1x1 convolution with a stride and few input channels can write past
    its workspace in that layout, and end the process (oneDNN issue 6035; 4 and 8 channels crash, 16
    and more do not). Networks that thin keep the channels outermost.
    """
    for part in encoder.modules():
        if (
            isinstance(part, nn.Conv2d)
            and set(part.kernel_size) == {1}
            and set(part.stride) != {1}
            and part.in_channels < 16
        ):
            return torch.contiguous_format
    return torch.channels_last
