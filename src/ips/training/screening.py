"""A screen in training, and how many patches it has to pass on to the encoder in predictions."""

from __future__ import annotations

from dataclasses import replace

import torch

from ips.config import Config
from ips.models import Net, Screen, SelectingNet
from ips.models.screen import recalls
from ips.nn import evaluating
from ips.patches import PatchSource
from ips.selection import Recall
from ips.training.audit import AuditedSelection
from ips.training.data import Data
from ips.training.score_store import Scores

_IMAGES = 64  # that are scored in full
_SHARE = 0.02  # of the other patches, from which the screen learns what it overlooks


class ScreenedScores(AuditedSelection):
    """Selects among the best patches by the screen's estimate, also of images never seen.

    Args:
        images, keep, floor, epochs, seed: see `AuditedSelection`.
    """

    def __init__(self, *, images: int, keep: int, floor: float, epochs: int, seed: int) -> None:
        super().__init__(
            images=images,
            keep=keep,
            share=_SHARE,
            floor=floor,
            epochs=epochs,
            seed=seed,
            asked=True,  # the screen has yet to learn
        )

    def estimate(self, net: SelectingNet, source: PatchSource, number: int) -> Scores:
        numbers = torch.from_numpy(source.numbers)  # (N,)
        found = Scores.unknown(numbers, net.channels)
        if not self.partial and number not in self.audited:  # it is scored in full anyway
            return found
        assert net.screen is not None
        logits = net.screen.estimate(source)
        return replace(found, logits=logits, epochs=torch.ones_like(found.epochs))

    def learn(self, number: int, scores: Scores) -> None:
        """Nothing: the screen learns from the gradient, see `Screen.distil`."""


def calibrate_screen(
    net: Net, config: Config, data: Data, *, last: Screen | None = None
) -> str | None:
    """Choose how many patches predictions score; return the result in words, None without a screen.

    The images are those for validation, or else those for training.

    Args:
        last: the screen of the last epoch. The model may be that of an earlier one, which was best
            before the screen had learnt enough; then the better of both screens is kept.
    """
    if not isinstance(net, SelectingNet) or net.screen is None or net.keep is None:
        return None
    images = data.validation if data.validation is not None else data.train
    count = min(len(images), _IMAGES)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(config.train.seed))
    screens = [net.screen, *([last] if last else [])]
    found: list[list[list[Recall]]] = [[] for _ in screens]
    for number in order[:count].tolist():
        with images[number][0] as source, evaluating(net):
            table = net.empty_table(source)
            chosen = net.select([source], load="lazy", seed=config.train.seed, tables=[table])
            kept = chosen.selection.indices[0][chosen.selection.mask[0]].cpu()
            logits = table.logits.float().cpu()
            for screen, rows in zip(screens, found, strict=True):
                rows.append(recalls(screen.estimate(source), logits, kept, keep=net.keep))
    calibrated = [
        (screen.calibrate(rows, floor=config.select.recall), screen)
        for screen, rows in zip(screens, found, strict=True)
    ]
    recall, net.screen = min(
        calibrated, key=lambda pair: (float(pair[1].share), -pair[0].attention.value)
    )
    share = float(net.screen.share)
    if share >= 1:
        return (
            "the screen misses too much of the attention on a coarse view: predictions score all "
            "patches"
        )
    return (
        f"screen: predictions score at least {share:.0%} of the patches (on {count} images: "
        f"{recall} that full scoring selects)"
    )
