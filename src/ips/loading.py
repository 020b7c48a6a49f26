"""Load trained models: from a run folder, of a cross-validation, or from the Hugging Face hub."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from ips.errors import ConfigError, RunError
from ips.files import fingerprint
from ips.nn.weights import HUB_FILE, hub_file
from ips.predictor import Ensemble, Predictor
from ips.training import RunFolder, load_model
from ips.training.folds import fold_runs

FORMAT = 1
"""Version of the layout of a shared model."""
CONFIG = "config.json"
"""File of a shared model that names its version."""
_HUB = "hub:"


def load(run: str | Path) -> Predictor:
    """Load the trained model of a run folder: ``load("runs/demo").predict("image.png")``.

    All models of a cross-validation (`ips train --folds`) are loaded as one.

    Args:
        run: run folder; folder of `ips share`; or ``hub:OWNER/REPO``, a model on the Hugging Face
            hub.
    """
    if str(run).startswith(_HUB):
        return _load(_download(str(run)))
    if folds := fold_runs(Path(run)):
        return Ensemble([_load(fold) for fold in folds])
    return _load(Path(run))


def _download(name: str) -> Path:
    """The local folder of a model on the hub."""
    repository = name.removeprefix(_HUB)
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ConfigError(f"{name}: write hub:OWNER/REPO")
    remedy = "check the name and the network connection"
    for file in (CONFIG, HUB_FILE):
        found = hub_file(repository, file, what=name, remedy=remedy)
    return found.parent


def _check_format(folder: Path) -> None:
    """Raise if a shared model has a layout that this version does not know."""
    try:
        values = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        version = int(values["format"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # a run folder, or a config.json of others
    if version > FORMAT:
        raise RunError(
            f"{folder}: was saved by a newer version of ips (format {version}, this version knows "
            f"up to {FORMAT}): pip install --upgrade iterative-patch-selection"
        )


def _load(run: Path) -> Predictor:
    _check_format(run)
    key = None
    with suppress(OSError):  # before the model is read, since it may be replaced meanwhile
        key = fingerprint(RunFolder(run).model)
    model = load_model(run)
    return Predictor(model.net, model.config, run=run, model_fingerprint=key)
