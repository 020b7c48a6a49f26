"""Measure how many patches a trained screen has to pass on to the encoder."""

from __future__ import annotations

import torch

from ips.config import Config
from ips.models import Net, SelectingNet
from ips.nn import evaluating
from ips.training.data import Data

_IMAGES = 64  # that are scored in full


def calibrate_screen(net: Net, config: Config, data: Data) -> str | None:
    """Choose how many patches predictions score; return the result in words, None without a screen.

    The images are those for validation, or else those for training.
    """
    if not isinstance(net, SelectingNet) or net.screen is None or net.keep is None:
        return None
    images = data.validation if data.validation is not None else data.train
    count = min(len(images), _IMAGES)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(config.train.seed))
    found = []
    for number in order[:count].tolist():
        with images[number][0] as source, evaluating(net):
            table = net.empty_table(source)
            chosen = net.select([source], load="lazy", seed=config.train.seed, tables=[table])
            kept = chosen.selection.indices[0][chosen.selection.mask[0]].cpu()
            found.append((net.screen.estimate(source), kept))
    floor = config.select.recall
    recall, share = net.screen.calibrate(found, keep=net.keep, floor=floor), float(net.screen.share)
    if share >= 1:
        return (
            "the screen finds too few of the selected patches on a coarse view: predictions score "
            "all patches"
        )
    return (
        f"screen: predictions score at least {share:.0%} of the patches, recall {recall} of the "
        f"selected patches on {count} images"
    )
