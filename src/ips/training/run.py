"""Train a model into a run folder, go on with one, and test it."""

from __future__ import annotations

import json
import logging
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console
from rich.progress import Progress

from ips.config import Config, parse_config, read_yaml, write_yaml
from ips.errors import RunError
from ips.models import Net
from ips.progress import progress_bar
from ips.tasks import build_tasks
from ips.training.allocator import keep_freed_memory
from ips.training.build import Data, build_data, build_model, resolve
from ips.training.callbacks import Bar, LastCheckpoint, MetricsLog, Watch
from ips.training.loading import Batches
from ips.training.module import Learner, Seen
from ips.training.store import RunFolder, load_model, save_model


def train(
    config: Config,
    run: Path,
    *,
    resume: bool = False,
    console: Console,
    data: Data | None = None,
    progress: Progress | None = None,
    watch: Callable[[int, Net], None] | None = None,
) -> Net:
    """Train ``config`` into the folder ``run``; with ``resume``, go on with the run that is there.

    Interrupted at any moment, the folder holds the state after the last finished epoch, and the
    resumed run ends with the weights that an uninterrupted one would have. ``progress`` is shown
    already, and gets a line for this run; ``watch`` sees the model after every epoch.
    """
    folder = RunFolder(run)
    if run.exists() and not run.is_dir():
        raise RunError(f"{run}: is a file: give a folder as --run")
    begun = folder.checkpoint.is_file() or folder.model.is_file()
    if begun and not resume:
        raise RunError(f"{run}: holds a run already: take another --run, or go on with --resume")
    data = data or build_data(config)
    config = resolve(config, data)
    if begun:
        _check_same(config, folder)
    if folder.model.is_file():
        return load_model(run)[0]
    torch.manual_seed(config.train.seed)
    net = build_model(config)
    run.mkdir(parents=True, exist_ok=True)
    write_yaml(config, folder.config)
    learner, batches = _learner(net, config), _batches(config, data)
    keep_freed_memory()
    logger = TensorBoardLogger(run, name="tensorboard", version="")
    bar = Bar(progress or progress_bar(console))
    callbacks: list[L.Callback] = [
        MetricsLog(folder.metrics),
        LastCheckpoint(folder.checkpoint),
        bar,
    ]
    if watch is not None:
        callbacks.insert(0, Watch(watch))
    checkpoint = folder.checkpoint if begun else None
    with _quiet(), _interruptible():
        trainer = _trainer(config, callbacks=callbacks, logger=logger)
        trainer.fit(learner, datamodule=batches, ckpt_path=checkpoint, weights_only=True)
    save_model(net, config, folder.model)
    return net


def evaluate(
    run: Path,
    *,
    console: Console,
    data: Data | None = None,
    progress: Progress | None = None,
    seen: Seen | None = None,
) -> tuple[dict[str, float], Net, Config]:
    """Score the trained model of ``run`` on its test images, and write ``test.json``.

    ``seen`` is handed the images of every batch, the answers and the patches they rest on.
    """
    net, config = load_model(run)
    learner = _learner(net, config)
    learner.seen = seen
    batches = _batches(config, data or build_data(config))
    with _quiet(), _interruptible():
        trainer = _trainer(config, callbacks=[Bar(progress or progress_bar(console))], logger=False)
        trainer.test(learner, datamodule=batches, verbose=False)
    scores = learner.scores()
    target = RunFolder(run).test
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(scores, indent=2) + "\n")
    partial.replace(target)
    return scores, net, config


def _check_same(config: Config, folder: RunFolder) -> None:
    """A run goes on as it was begun, but for settings that do not change what it learns."""
    old = parse_config(read_yaml(folder.config), source=str(folder.config))
    now, then = _flat(config.model_dump(mode="json")), _flat(old.model_dump(mode="json"))
    free = {"train.workers", "select.load", "select.compile", "patches.slide_mpp"}
    changed = sorted(k for k in (now.keys() | then.keys()) - free if now.get(k) != then.get(k))
    if changed:
        raise RunError(
            f"{folder.path}: was started with other settings ({', '.join(changed)}): resume with "
            f"those in {folder.config.name}, or start anew in another folder"
        )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _learner(net: Net, config: Config) -> Learner:
    return Learner(
        net,
        build_tasks(config.tasks),
        load=config.select.load,
        lr=config.train.lr,
        weight_decay=config.train.weight_decay,
        warmup=config.train.warmup_epochs,
        seed=config.train.seed,
        freeze_norm=config.encoder.freeze_norm,
    )


def _batches(config: Config, data: Data) -> Batches:
    return Batches(
        data.train,
        data.test,
        batch=config.train.batch,
        load=config.select.load,
        seed=config.train.seed,
        workers=config.train.workers,
    )


def _trainer(
    config: Config, *, callbacks: list[L.Callback], logger: TensorBoardLogger | bool
) -> L.Trainer:
    return L.Trainer(
        max_epochs=config.train.epochs,
        accelerator="gpu" if torch.cuda.is_available() else "cpu",
        devices=1,
        precision=config.train.precision,
        gradient_clip_val=config.dps.clip if config.method == "dps" else None,
        logger=logger,
        callbacks=callbacks,
        enable_checkpointing=False,  # LastCheckpoint does it, atomically
        enable_progress_bar=False,  # Bar does it
        enable_model_summary=False,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=1,  # an epoch's order follows from its number
    )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C as Python has it: Lightning exits the process, and ignores the key from then on."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as stop:
        raise KeyboardInterrupt from stop
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's notes on hardware and its advice on loaders, which are ours to mind."""
    names = ("lightning.pytorch", "lightning.fabric")
    levels = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PossibleUserWarning)
            # from inside Lightning, of its use of torch's tree utilities
            warnings.filterwarnings("ignore", message=".*LeafSpec.*")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
