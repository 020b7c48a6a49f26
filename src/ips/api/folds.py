"""Cross-validation: a training for every fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

    from ips.training.folds import FoldScores


def train_folds(
    recipe: str | Path,
    *,
    run: str | Path,
    folds: int,
    repeats: int = 1,
    scale: Literal["laptop", "paper"] | None = None,
    settings: Sequence[str] = (),
    resume: bool = False,
    skip_errors: bool = False,
    console: Console | None = None,
    on_fold: Callable[[str, int, int], None] | None = None,
) -> dict[str, FoldScores]:
    """Train a model for every fold of the images that are not for testing.

    Each fold is validated on its own images and trained on the others. Test images stay apart; at
    the end, all models together predict them. `ips.load` loads all models as one.

    Args:
        recipe: path of a YAML file whose data is a table.
        run: folder of the cross-validation, with a run folder for every fold.
        folds: number of folds.
        repeats: how often to divide the images anew, with a training for each fold every time.
        scale: scale of a recipe.
        resume: continue in the folder; finished folds are not trained again.
        skip_errors: leave out files that cannot be read.
        on_fold: callback that receives the name of a run folder, its number and how many there are.
    """
    from ips.api import read_config, train_run, without_bad_files
    from ips.training import RunFolder
    from ips.training.folds import fold_configs, stored_or_new, summarise

    config = read_config(str(recipe), scale, settings)
    finished = []
    with RunFolder(Path(run)).lock():
        if skip_errors:
            config = without_bad_files(config, Path(run), resume=resume, console=console)
        members = fold_configs(config, Path(run), folds=folds, repeats=repeats)
        train = partial(train_run, resume=resume, console=console)
        for number, (member, folder) in enumerate(members, start=1):
            if on_fold is not None:
                on_fold(folder.name, number, len(members))
            finished.append(stored_or_new(member, folder, train, resume=resume, console=console))
        return summarise(Path(run), finished)
