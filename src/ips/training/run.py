"""Train a model into a run folder, go on with one, and test it."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lightning as L
import torch
from lightning.fabric.utilities.warnings import PossibleUserWarning
from lightning.pytorch.loggers import TensorBoardLogger
from rich.console import Console

from ips.config import Config, parse_config, read_yaml, write_yaml
from ips.errors import RunError
from ips.models import IPSNet
from ips.training.build import Data, build_data, build_model, build_task, resolve
from ips.training.callbacks import Bar, LastCheckpoint, MetricsLog
from ips.training.loading import Batches
from ips.training.module import Learner
from ips.training.store import RunFolder, load_model, save_model


def train(config: Config, run: Path, *, resume: bool = False, console: Console) -> IPSNet:
    """Train ``config`` into the folder ``run``; with ``resume``, go on with the run that is there.

    Interrupted at any moment, the folder holds the state after the last finished epoch, and the
    resumed run ends with the weights that an uninterrupted one would have.
    """
    folder = RunFolder(run)
    if not resume and (folder.config.exists() or folder.model.exists()):
        raise RunError(f"{run}: holds a run already: take another --run, or go on with --resume")
    data = build_data(config)
    config = resolve(config, data)
    if folder.config.exists():
        _check_same(config, folder)
    if folder.model.is_file():
        return load_model(run)[0]
    run.mkdir(parents=True, exist_ok=True)
    write_yaml(config, folder.config)
    torch.manual_seed(config.train.seed)
    net = build_model(config)
    learner, batches = _learner(net, config), _batches(config, data)
    logger = TensorBoardLogger(run, name="tensorboard", version="")
    callbacks = [MetricsLog(folder.metrics), LastCheckpoint(folder.checkpoint), Bar(console)]
    checkpoint = folder.checkpoint if resume and folder.checkpoint.is_file() else None
    with _quiet():
        trainer = _trainer(config, callbacks=callbacks, logger=logger)
        try:
            trainer.fit(learner, datamodule=batches, ckpt_path=checkpoint, weights_only=True)
        except SystemExit as stop:  # which is what Lightning makes of Ctrl-C
            raise KeyboardInterrupt from stop
    save_model(net, config, folder.model)
    return net


def evaluate(
    run: Path, *, console: Console, data: Data | None = None
) -> tuple[dict[str, float], IPSNet, Config]:
    """Score the trained model of ``run`` on its test images, and write ``test.json``."""
    net, config = load_model(run)
    learner = _learner(net, config)
    batches = _batches(config, data or build_data(config))
    with _quiet():
        trainer = _trainer(config, callbacks=[Bar(console)], logger=False)
        trainer.test(learner, datamodule=batches, verbose=False)
    scores = learner.scores()
    target = RunFolder(run).test
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(scores, indent=2) + "\n")
    partial.replace(target)
    return scores, net, config


def _check_same(config: Config, folder: RunFolder) -> None:
    old = parse_config(read_yaml(folder.config), source=str(folder.config))
    now, then = config.model_dump(mode="json"), old.model_dump(mode="json")
    changed = [
        f"{section}.{key}" if isinstance(values, dict) else section
        for section, values in now.items()
        for key in (values if isinstance(values, dict) else [section])
        if values != then[section]
        and (not isinstance(values, dict) or values.get(key) != then[section].get(key))
    ]
    if changed:
        raise RunError(
            f"{folder.path}: was started with other settings ({', '.join(changed)}): resume with "
            f"those in {folder.config.name}, or start a new run with another --run"
        )


def _learner(net: IPSNet, config: Config) -> Learner:
    return Learner(
        net,
        {name: build_task(task) for name, task in config.tasks.items()},
        load=config.select.load,
        lr=config.train.lr,
        weight_decay=config.train.weight_decay,
        warmup=config.train.warmup,
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
        devices=1,
        precision=config.train.precision,
        logger=logger,
        callbacks=callbacks,
        enable_checkpointing=False,  # LastCheckpoint does it, atomically
        enable_progress_bar=False,  # Bar does it
        enable_model_summary=False,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=1,  # an epoch's order follows from its number
    )


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
