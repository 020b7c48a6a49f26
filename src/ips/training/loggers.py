"""Further logs of a training: Weights & Biases and MLflow, through Lightning.

TensorBoard's log and ``metrics.csv`` are always written.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import loggers
from lightning.pytorch.loggers import Logger

from ips.errors import ConfigError, IPSError
from ips.files import write_text

_PROJECT = "ips"


@contextmanager
def open_loggers(
    names: Sequence[str], run: Path, settings: Mapping[str, Any]
) -> Iterator[list[Logger]]:
    """The loggers of a run; a resumed run continues its entry in each of them.

    Args:
        names: ``wandb`` or ``mlflow``.
        run: run folder, which remembers the identifiers of the run there.
        settings: settings of the run, which are logged, too.
    """
    path = run / "loggers.json"
    known = _read(path)
    opened: list[Logger] = []
    ended = "failed"
    try:
        for name in names:
            try:
                logger, known[name] = _BUILDERS[name](run, known.get(name))
                logger.log_hyperparams(dict(settings))
            except IPSError:
                raise
            except Exception as error:  # of the service or the network, of any type
                reason = str(error).partition("\n")[0] or type(error).__name__
                raise ConfigError(
                    f"train.loggers: {name} cannot be used ({reason}): {_REMEDIES[name]}"
                ) from error
            opened.append(logger)
            write_text(path, json.dumps(known, indent=2) + "\n")
        yield opened
        ended = "success"
    finally:
        for logger in opened:
            logger.finalize(ended)
            if isinstance(logger, loggers.WandbLogger):
                # Lightning leaves it open, and would log the next run of this process to it.
                logger.experiment.finish(exit_code=int(ended == "failed"))


def _read(path: Path) -> dict[str, str]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): str(value) for name, value in values.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path}: is damaged: delete it, and the logs begin anew") from error


def _wandb(run: Path, known: str | None) -> tuple[Logger, str]:
    key = known or secrets.token_hex(4)
    logger = loggers.WandbLogger(
        name=run.name,
        save_dir=run,
        id=key,
        project=os.environ.get("WANDB_PROJECT", _PROJECT),
        resume="allow",
    )
    _ = logger.experiment  # connects, so that a mistake is found before the training
    return logger, key


def _mlflow(run: Path, known: str | None) -> tuple[Logger, str]:
    logger = loggers.MLFlowLogger(
        experiment_name=os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT),
        run_name=run.name,
        tracking_uri=_mlflow_address(),
        run_id=known,
    )
    key = logger.run_id
    assert key is not None
    return logger, key


def _mlflow_address() -> str:
    """``MLFLOW_TRACKING_URI``, or else the database that ``mlflow ui`` shows in this folder.

    Lightning would choose a folder of files, which MLflow 3 refuses.
    """
    import mlflow

    return str(mlflow.get_tracking_uri())


_BUILDERS: dict[str, Callable[[Path, str | None], tuple[Logger, str]]] = {
    "wandb": _wandb,
    "mlflow": _mlflow,
}
_REMEDIES = {
    "wandb": "log in with `wandb login`, or set WANDB_MODE=offline",
    "mlflow": "check MLFLOW_TRACKING_URI",
}
