"""The patches that were selected of each training image when all its patches were last looked at.

Letters: n training images, B images of a batch, K <= M patches kept of an image.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ips.config import Config
from ips.errors import ConfigError
from ips.models import Net, SelectingNet
from ips.selection import Selection

_NONE = -1


class ChosenPatches(nn.Module):
    """Remembers M patches of each of n images; a buffer, so that a checkpoint has them, too."""

    kept: Tensor

    def __init__(self, images: int, keep: int) -> None:
        super().__init__()
        self.register_buffer("kept", torch.full((images, keep), _NONE, dtype=torch.int32))

    def put(self, numbers: Sequence[int], selection: Selection) -> None:
        """Store the selection of the images with these B numbers."""
        for number, indices, mask in zip(numbers, selection.indices, selection.mask, strict=True):
            row = indices[mask].to(self.kept)
            self.kept[number] = _NONE
            self.kept[number, : len(row)] = row

    def get(self, numbers: Sequence[int]) -> list[Tensor] | None:
        """The indices ``(K,)`` of these images; None if one of them has not been looked at."""
        rows = [self.kept[number] for number in numbers]
        found = [row[row != _NONE].long() for row in rows]
        return found if all(len(row) for row in found) else None

    def forget(self) -> None:
        """Forget all."""
        self.kept.fill_(_NONE)


def build_memory(net: Net, config: Config, *, images: int) -> ChosenPatches | None:
    """A memory for the training images, if the config asks to look at them more rarely."""
    every = config.select.every
    if every == 1:
        return None
    if getattr(config.data, "fresh", False):
        raise ConfigError(
            f"select.every={every} with data.fresh=true, whose images change from epoch to epoch: "
            "set select.every=1, or data.fresh=false"
        )
    if not isinstance(net, SelectingNet) or not net.scores_all_patches or net.keep is None:
        raise ConfigError(
            f"select.every={every} with method={config.method}, which does not select among all "
            "patches: set select.every=1"
        )
    return ChosenPatches(images, net.keep)
