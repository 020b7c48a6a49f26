"""Which trainings score only some patches, and by which estimate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ips.config import Config
from ips.models import Net, SelectingNet
from ips.training.audit import AuditedSelection
from ips.training.data import Data, is_fresh
from ips.training.processes import Processes
from ips.training.refresh import CachedScores
from ips.training.score_store import ScoreStore
from ips.training.screening import ScreenedScores


def build_shortlists(
    net: Net, config: Config, data: Data, folder: Path, *, say: Callable[[str], None]
) -> AuditedSelection | None:
    """What chooses the patches that a training scores; None if it scores all.

    Scores of earlier epochs come first, then the screen. Says why a setting has no effect.

    Args:
        data: data sets, before augmentation.
        folder: folder of the files.
        say: prints a sentence.
    """
    select = config.select
    if select.refresh == 1 and not select.screen:
        return None
    setting = "select.screen=true" if select.refresh == 1 else f"select.refresh={select.refresh:g}"
    if (count := Processes.of(config).count) > 1:
        reason = f"each of {count} devices would know the scores of its own images only"
        say(f"{setting} has no effect in training, which scores all patches: {reason}")
        return None
    if not isinstance(net, SelectingNet) or not net.scores_all_patches or net.keep is None:
        reason = f"method={config.method} does not select among all patches"
        say(f"{setting} has no effect, and all patches are scored: {reason}")
        return None
    fresh = select.refresh < 1 and is_fresh(data.train)
    if fresh:
        instead = "patches are chosen by select.screen" if net.screen else "all patches are scored"
        reason = "the training images are drawn anew, or moved, in every epoch"
        say(f"{setting} has no effect, and {instead}: {reason}")
    options: dict[str, Any] = {
        "keep": net.keep,
        "floor": select.recall,
        "epochs": config.train.epochs,
        "seed": config.train.seed,
    }
    images = len(data.train)
    if select.refresh < 1 and not fresh:
        store = ScoreStore(folder, images=images, channels=net.channels)
        return CachedScores(store, share=select.refresh, **options)
    if net.screen is not None:
        return ScreenedScores(images=images, **options)
    return None
