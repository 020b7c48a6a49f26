"""Train a model into a run folder, and resume a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import LambdaCallback
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from ips.config import Config, TableConfig
from ips.config_io import parse_saved_config, read_yaml, write_yaml
from ips.data.augmented import AugmentedData
from ips.data.cells import encoding_note
from ips.devices import pick_device
from ips.errors import ConfigError, require
from ips.models import Net, Screen, SelectingNet
from ips.progress import progress_bar
from ips.tasks import Survival, build_tasks
from ips.training import harness
from ips.training.audit import Auditing
from ips.training.balance import class_weights, lopsided_classes
from ips.training.batches import Batches
from ips.training.best import BestEpoch
from ips.training.checks import check_files, missing_classes, missing_labels
from ips.training.data import Data, build_data
from ips.training.defaults import changes
from ips.training.event_log import EventLog
from ips.training.feature_start import FEWEST, begin_with_features
from ips.training.folder import ModelEpoch, RunFolder, TrainedModel, load_model, save_model
from ips.training.leaks import leaks
from ips.training.loggers import open_loggers
from ips.training.model import build_lead, build_model, resolve
from ips.training.module import Learner
from ips.training.processes import Processes
from ips.training.refresh import CachedScores
from ips.training.score_store import ScoreStore
from ips.training.screening import calibrate_screen
from ips.training.shortlists import build_shortlists
from ips.training.split_file import check_test_images, record_split
from ips.training.start import Starting
from ips.training.testing import grouped, predict_split

# Settings that may differ in a resumed run, since they do not change what is learnt. Channels do,
# but so does encoder.inputs then.
_FREE = (
    "data.objects",
    *("train.workers", "select.load", "select.compile"),
    # These change it by rounding, random streams and the statistics of BatchNorm.
    *("train.devices", "train.nodes", "train.strategy", "train.sync_batchnorm"),
    *("train.checkpoint_minutes", "train.loggers"),
    *("patches.channels", "patches.slide_mpp"),
)


def train(
    config: Config,
    run: Path,
    *,
    resume: bool = False,
    console: Console | None = None,
    data: Data | None = None,
    progress: Progress | None = None,
    watch: Callable[[int, Net], None] | None = None,
    callbacks: Sequence[L.Callback] = (),
) -> TrainedModel:
    """Train a model into a run folder.

    The state is saved after every epoch, and within an epoch every ``train.checkpoint_minutes``. A
    resumed run ends with the same weights as an uninterrupted one. With several devices, all of
    their processes call this function, and only the first writes.

    Args:
        resume: continue the run in the folder, if there is one.
        data: data sets, if they are built already.
        progress: progress display that gets a bar for this run, instead of ``console``.
        watch: callback that receives the number of finished epochs and the model.
        callbacks: further callbacks of Lightning.
    """
    folder, processes = RunFolder(run), check_processes(config)
    require(*config.train.loggers)
    with folder.lock(processes):
        started = folder.has_run(resume=resume)
        data = data or build_data(config)
        config = resolve(config, data)
        if started:
            check_started(config, folder, data)
        if folder.model.is_file():
            check_test_images(folder.split, data)
            return load_model(run)
        progress = progress or progress_bar(console if processes.is_first else None)
        if not started:
            _check(data, config, progress)
            _announce_balance(data, config, progress)
        elif config.patches.tissue is not None:
            check_files(data, progress)  # finds the tissue once, before there are workers
        torch.manual_seed(config.train.seed)
        net = build_model(config)
        if processes.is_first:
            write_yaml(config.model_dump(mode="json"), folder.config)
            record_split(folder.split, data)
        weights = _class_weights(data, config)
        best = _best_epoch(config, folder)
        say = partial(_say, progress)
        lead = build_lead(net, config)
        shortlists = build_shortlists(net, config, data, folder.checkpoint.parent, say=say)
        store = shortlists.store if isinstance(shortlists, CachedScores) else None
        settled = _begin(net, config, data, folder, weights, store, progress)
        starting = Starting(config, folder, best=best, settled=settled, say=say)
        watchers = [_watcher(watch)] if watch and processes.is_first else []
        first = [*([best] if best else []), *watchers]
        audit = [Auditing(shortlists, say)] if shortlists else []
        settings = _flat_settings(config)
        names = config.train.loggers if processes.is_first else []
        learner = Learner(net, config, weights=weights, lead=lead, shortlists=shortlists)
        with open_loggers(names, run, settings) as others:
            trainer = harness.fit(
                learner,
                Batches(config, _augmented(data, config), shortlists=shortlists),
                folder,
                settings=settings,
                progress=progress,
                epochs=config.train.epochs,
                precision=config.train.precision,
                processes=processes,
                strategy=config.train.strategy,
                sync_batchnorm=config.train.sync_batchnorm,
                checkpoint_minutes=config.train.checkpoint_minutes,
                deterministic=config.train.deterministic,
                gradient_clip=config.train.clip or net.gradient_clip,
                accumulate=config.train.accumulate,
                loggers=[EventLog(run / "tensorboard"), *others],
                log_memory=True,
                callbacks=[*first, *audit, starting, *callbacks],
            )
        last: Screen | None = None
        if config.train.result == "best" and isinstance(net, SelectingNet):
            last = deepcopy(net.screen)
        epoch = _finish(net, config, best, epochs=trainer.current_epoch)
        config = _with_thresholds(net, config, data, progress)
        if (sentence := calibrate_screen(net, config, data, last=last)) is not None:
            say(sentence)
        if processes.is_first:
            save_model(net, config, folder.model, epoch=epoch)
        if shortlists is not None:
            shortlists.close()
        if best is not None:
            _say(progress, _ending(config, epoch))
    return TrainedModel(net.eval(), config)


def _begin(
    net: Net,
    config: Config,
    data: Data,
    folder: RunFolder,
    weights: Mapping[str, Tensor] | None,
    store: ScoreStore | None,
    progress: Progress,
) -> bool:
    """Let attention learn from embeddings at first, if the config asks; return whether it did."""
    if config.train.start != "features" or folder.has_checkpoint:
        return False
    if (count := Processes.of(config).count) > 1:
        _say(
            progress,
            f"train.start=features needs one device, and there are {count}: classifiers of single "
            "patches lead the start",
        )
        return False
    if len(data.train) < FEWEST:
        _say(
            progress,
            f"train.start=features needs at least {FEWEST} training images, and there are "
            f"{len(data.train)}: classifiers of single patches lead the start",
        )
        return False
    assert isinstance(net, SelectingNet)
    net.to(pick_device())
    options: dict[str, Any] = {
        "folder": folder.checkpoint.parent,
        "progress": progress,
        "weights": weights,
        "store": store,
        "state": _state(config, data),
    }
    with nullcontext() if progress.live.is_started else progress:
        found = begin_with_features(net, config, data.train, **options)
    _say(progress, str(found))
    return found.begun


def _state(config: Config, data: Data) -> str:
    """What changes with the files of images and weights."""
    files = [*data.files, *([config.encoder.weights] if config.encoder.weights else [])]
    stats = [path.stat() if path.is_file() else None for path in files]
    states = [(stat.st_size, stat.st_mtime_ns) if stat else None for stat in stats]
    return "\n".join(map(str, [*data.table, *zip(files, states, strict=True)]))


def check_processes(config: Config) -> Processes:
    """The processes that a config asks for, if they were started."""
    processes, batch = Processes.of(config), config.train.batch
    processes.check(devices="train.devices", nodes="train.nodes")
    if batch < processes.count:
        raise ConfigError(
            f"train.batch={batch} on {processes.count} devices: use at least one image for "
            "each device"
        )
    return processes


def check_started(config: Config, folder: RunFolder, data: Data) -> None:
    """Check that the run in a folder was started with these settings, which are resolved."""
    then = parse_saved_config(read_yaml(folder.config), source=str(folder.config))
    then = resolve(then, data)  # an earlier version had fewer settings
    folder.check_settings(_flat_settings(config), _flat_settings(then))


def _augmented(data: Data, config: Config) -> Data:
    """The data with random changes of its training images, if the config asks for any."""
    if not changes(config.augment):
        return data
    return replace(data, train=AugmentedData(data.train, config.augment, seed=config.train.seed))


def _ending(config: Config, epoch: ModelEpoch) -> str:
    text = f"the model is that of {epoch}"
    if epoch.epochs < config.train.epochs:
        text += (
            f"; training stopped early, after {config.train.patience} epochs without a better "
            f"validation {config.train.monitor}"
        )
    return text


def _best_epoch(config: Config, folder: RunFolder) -> BestEpoch | None:
    train = config.train
    if train.result != "best" and train.patience is None:
        return None
    return BestEpoch(folder, monitor=train.monitor, patience=train.patience)


def _finish(net: Net, config: Config, best: BestEpoch | None, *, epochs: int) -> ModelEpoch:
    """Give the model the weights of the epoch that the config asks for."""
    if config.train.result != "best":
        return ModelEpoch(epochs, epochs)
    assert best is not None
    best.load_into(net)
    if config.train.monitor == "loss" or math.isnan(best.score):
        return ModelEpoch(best.epoch, epochs, "loss", best.loss)
    return ModelEpoch(best.epoch, epochs, "score", best.score)


def _with_thresholds(net: Net, config: Config, data: Data, progress: Progress) -> Config:
    """The config with the median risk of the training images for survival tasks."""
    tasks = build_tasks(config.tasks)
    if not any(isinstance(task, Survival) and task.threshold is None for task in tasks.values()):
        return config
    processes, learner = Processes.of(config), Learner(net, config)
    found = grouped(predict_split(learner, data, progress, processes, "train"), data, "train")
    update = {}
    for task in found.tasks:
        if isinstance(task.task, Survival) and task.task.threshold is None:
            risks = task.task.risk(torch.from_numpy(task.probabilities))
            spec = config.tasks[task.name]
            update[task.name] = spec.model_copy(update={"threshold": float(risks.median())})
    return config.model_copy(update={"tasks": {**config.tasks, **update}})


def _check(data: Data, config: Config, progress: Progress) -> None:
    """Check labels and files before the first step; warn of doubtful splits."""
    tasks = build_tasks(config.tasks)
    warnings = missing_classes(data.labels, tasks)
    for sentence in missing_labels(data.labels, tasks):
        _say(progress, sentence)
    if isinstance(config.data, TableConfig):
        warnings += leaks(data, config.data)
        if note := encoding_note(config.data.csv):
            warnings.append(note)
    for warning in warnings:
        _say(progress, f"warning: {warning}")
    if data.stored:
        check_files(data, progress)


def _announce_balance(data: Data, config: Config, progress: Progress) -> None:
    """Say that classes are weighed, which is usually the default."""
    if config.train.balance != "lopsided":
        return
    found = lopsided_classes(data.labels["train"], build_tasks(config.tasks))
    if found is not None:
        _say(progress, f"{found}: rare classes count more in the loss (train.balance=lopsided)")


def _class_weights(data: Data, config: Config) -> dict[str, Tensor] | None:
    """The weights of the classes in the loss; None for equal ones."""
    balance, tasks = config.train.balance, build_tasks(config.tasks)
    if balance not in ("weights", "lopsided"):
        return None
    return class_weights(data.labels["train"], tasks, only_lopsided=balance == "lopsided")


def _say(progress: Progress, text: str) -> None:
    progress.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _flat_settings(config: Config) -> dict[str, Any]:
    """Every setting that changes what is learnt, by its dotted key."""
    flat: dict[str, Any] = {}

    def add(values: dict[str, Any], prefix: str) -> None:
        for key, value in values.items():
            if isinstance(value, dict):
                add(value, f"{prefix}{key}.")
            else:
                flat[prefix + key] = value

    add(config.model_dump(mode="json"), "")
    return {key: value for key, value in flat.items() if key not in _FREE}


def _watcher(watch: Callable[[int, Net], None]) -> LambdaCallback:
    def on_train_epoch_end(trainer: L.Trainer, learner: L.LightningModule) -> None:
        assert isinstance(learner, Learner)
        watch(trainer.current_epoch + 1, learner.net)

    return LambdaCallback(on_train_epoch_end=on_train_epoch_end)
