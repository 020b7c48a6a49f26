from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch.loggers
import pytest
from lightning.pytorch.loggers import Logger
from rich.console import Console

from ips.errors import ConfigError, MissingPackageError
from ips.training import loggers, run, train
from tests.training.tiny import tiny


class Service(Logger):
    """Stands in for the logger of a service; each instance is in `made`."""

    made: list[Service]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options, self.steps, self.ended = options, list[int | None](), ""
        self.settings: dict[str, Any] = {}
        self.run_id = options.get("run_id") or f"run-{len(self.made)}"
        self.experiment = self
        self.made.append(self)

    @property
    def name(self) -> str:
        return "service"

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: dict[str, Any]) -> None:  # type: ignore[override]
        self.settings = params

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        assert "loss" in metrics
        self.steps.append(step)

    def finalize(self, status: str) -> None:
        self.ended = status

    def finish(self, exit_code: int) -> None:
        self.ended += f" {exit_code}"


class Refusing(Service):
    """A service that does not let us in."""

    def __init__(self, **options: Any) -> None:
        raise ValueError("api_key not configured\nand much more")


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    made: list[Service] = []
    service = type("Stand", (Service,), {"made": made})
    monkeypatch.setattr(lightning.pytorch.loggers, "WandbLogger", service)
    monkeypatch.setattr(lightning.pytorch.loggers, "MLFlowLogger", type("Other", (service,), {}))
    monkeypatch.setattr(run, "require", lambda *names: None)
    mlflow = SimpleNamespace(get_tracking_uri=lambda: "sqlite:///mlflow.db")
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return made


CONFIG = tiny("train.loggers=[wandb,mlflow]", "train.epochs=2")


def test_every_epoch_is_logged_and_a_resumed_run_continues(
    tmp_path: Path, services: list[Service]
) -> None:
    def stop(epoch: int, net: object) -> None:
        if epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(CONFIG, tmp_path / "run", watch=stop)
    train(CONFIG, tmp_path / "run", resume=True)
    assert len(services) == 4  # two before, and two after the interruption
    wandb, mlflow, later, last = services
    assert wandb.options["id"] == later.options["id"]
    assert mlflow.options["run_id"] is None
    assert mlflow.options["tracking_uri"] == "sqlite:///mlflow.db"
    assert last.options["run_id"] == mlflow.run_id
    assert sorted({*wandb.steps, *later.steps}) == [1, 2]  # type: ignore[type-var]
    assert later.settings["select.keep"] == 4
    assert later.ended == "success 0"
    assert wandb.ended == "failed 1"
    assert (tmp_path / "run/metrics.csv").is_file()
    assert list((tmp_path / "run/tensorboard").iterdir())
    assert set(json.loads((tmp_path / "run/loggers.json").read_text())) == {"wandb", "mlflow"}


def test_mistakes(tmp_path: Path, services: list[Service], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lightning.pytorch.loggers, "WandbLogger", Refusing)
    with pytest.raises(ConfigError, match=r"wandb cannot be used \(api_key not configured\): log"):
        train(CONFIG, tmp_path / "a", console=Console(quiet=True))
    (tmp_path / "b").mkdir()
    (tmp_path / "b/loggers.json").write_text("[")
    opened = loggers.open_loggers(["mlflow"], tmp_path / "b", {})
    with pytest.raises(ConfigError, match=r"loggers.json: is damaged: delete it"), opened:
        pass


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setattr("ips.errors.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"iterative-patch-selection\[mlflow\]"):
        train(tiny("train.loggers=[mlflow]"), tmp_path / "run")
