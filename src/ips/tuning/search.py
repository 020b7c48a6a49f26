"""Train one run after another with settings that Optuna chooses by validation scores."""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
import torch
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from ips import training
from ips.config import Config
from ips.config_io import write_yaml
from ips.errors import ConfigError, IPSError, because
from ips.files import write_text
from ips.locks import lock_folder
from ips.report.curves import read_log, scores_on
from ips.training import RunFolder, build_data
from ips.training.data import Data
from ips.training.model import resolve
from ips.tuning.picture import draw_trials
from ips.tuning.space import Range, as_settings, own_values, parse_range, usual_ranges
from ips.tuning.trial import Trial

if TYPE_CHECKING:
    from rich.console import Console

Configure = Callable[[Sequence[str]], Config]
_ABOUT = "about"  # attribute of the study: what is searched


@dataclass(frozen=True)
class Tuning:
    """The result of a search.

    Attributes:
        folder: its folder, with ``trials.csv``, ``tune.png``, ``best.yaml`` and the runs.
        trials: all runs so far, in their order.
    """

    folder: Path
    trials: list[Trial]

    @property
    def best(self) -> Trial | None:
        """The run with the highest score; of equal ones, the first."""
        scored = [trial for trial in self.trials if trial.score is not None]
        return max(scored, key=lambda trial: trial.score or -math.inf, default=None)


def tune(
    configure: Configure,
    folder: Path,
    *,
    name: str,
    over: Sequence[str] = (),
    trials: int = 20,
    hours: float | None = None,
    seed: int = 0,
    console: Console | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> Tuning:
    """Search for the settings with the best validation scores; test images are never used.

    The search in the folder is continued, if there is one, also within a run.

    Args:
        configure: returns a config with further settings.
        name: name of what is tuned, for messages and to recognise the search in the folder.
        over: settings and their values, as ``train.lr=0.0003..0.01`` or ``select.keep=5,10``; by
            default see `usual_ranges`.
        trials: number of runs, with those that the folder has already.
        hours: time after which no further run begins.
        on_trial: callback that receives every run that has ended.
    """
    start, config = time.monotonic(), configure([])
    given = [parse_range(text) for text in over]
    for one in given:
        for value in one.ends:
            configure([f"{one.key}={value}"])
    with lock_folder(folder, option="--out"):
        base = resolve(config, _data(config, name))
        ranges = given or usual_ranges(base)
        study = _study(folder, seed, [name, *(f"{one.key}={one.distribution}" for one in ranges)])
        own = own_values(base, ranges)
        if own is not None and not study.trials:
            study.enqueue_trial(own)  # the first run is that of the config itself
        while len(study.get_trials(states=(TrialState.COMPLETE, TrialState.FAIL))) < trials:
            if hours is not None and time.monotonic() - start > 3600 * hours:
                break
            number, settings = _next(study, ranges, base)
            run = folder / f"trial-{number + 1}"
            try:
                score = _score(configure(_texts(settings)), run, name, console)
            except (IPSError, torch.OutOfMemoryError) as error:
                study.set_user_attr(_problem(number), str(error).partition("\n")[0])
                study.tell(number, state=TrialState.FAIL)
            else:
                study.tell(number, score)
            found = Tuning(folder, _trials(study, base))
            _write(found, configure)
            if on_trial is not None:
                on_trial(found.trials[number])
    found = Tuning(folder, _trials(study, base))
    if found.best is None and found.trials:
        raise IPSError(f"{folder}: every run failed, the last because: {found.trials[-1].problem}")
    return found


def _data(config: Config, name: str) -> Data:
    """The data without its test images, so that nothing can be chosen by them."""
    data = build_data(config)
    if not data.validation:
        raise ConfigError(
            f"{name}: has no validation images to choose settings by: add some to the split "
            "column of the table, or set data.validation"
        )
    return replace(data, test=[])


def _study(folder: Path, seed: int, about: list[str]) -> optuna.Study:
    """The search in the folder, or a new one."""
    path = folder / "study.journal"
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = optuna.create_study(
            storage=storage, study_name="tune", direction="maximize", load_if_exists=True
        )
    except (ValueError, KeyError, TypeError) as error:
        reason = because(error, remedy="give another folder as --out")
        raise ConfigError(f"{path}: is no search of ips tune {reason}") from error
    if study.user_attrs.get(_ABOUT, about) != about:
        raise ConfigError(
            f"{folder}: has a search over other settings: repeat its --over and recipe, or give "
            "another folder as --out"
        )
    study.set_user_attr(_ABOUT, about)
    # Another seed after a pause, because the first would suggest the same settings again.
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
    return study


def _next(study: optuna.Study, ranges: Sequence[Range], base: Config) -> tuple[int, dict[str, str]]:
    """Number and settings of the run that was interrupted, or of the next one."""
    if interrupted := study.get_trials(states=(TrialState.RUNNING,)):
        return interrupted[0].number, as_settings(interrupted[0].params, base)
    trial = study.ask({one.key: one.distribution for one in ranges})
    return trial.number, as_settings(trial.params, base)


def _score(config: Config, run: Path, name: str, console: Console | None) -> float:
    """Train a run, or finish it, and return the mean validation score of its model."""
    training.train(config, run, resume=True, console=console, data=_data(config, name))
    folder = RunFolder(run)
    log, epoch = read_log(folder.metrics), folder.model_epoch()
    assert epoch is not None
    row = log["epoch"].tolist().index(epoch.epoch)
    found = [float(values[row]) for values in scores_on("validation", log).values()]
    scores = [score for score in found if not math.isnan(score)]
    if not scores:
        raise IPSError("the validation score is undefined: add validation images of other classes")
    return sum(scores) / len(scores)


def _problem(number: int) -> str:
    """Attribute of the study that says why a run failed."""
    return f"problem of {number}"


def _trials(study: optuna.Study, base: Config) -> list[Trial]:
    return [
        Trial(
            trial.number + 1,
            as_settings(trial.params, base),
            trial.value,
            study.user_attrs.get(_problem(trial.number), ""),
        )
        for trial in study.trials
        if trial.state.is_finished()
    ]


def _texts(settings: dict[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _write(found: Tuning, configure: Configure) -> None:
    """Write what is known so far: table, picture, and the best config."""
    keys = list(found.trials[0].settings)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["trial", *keys, "score", "problem"])
    for trial in found.trials:
        score = "" if trial.score is None else f"{trial.score:.6g}"
        writer.writerow([trial.number, *(trial.settings[k] for k in keys), score, trial.problem])
    write_text(found.folder / "trials.csv", text.getvalue())
    if found.best is not None:
        config = configure(_texts(found.best.settings))
        write_yaml(config.model_dump(mode="json"), found.folder / "best.yaml")
        draw_trials(found.folder / "tune.png", found.trials)
