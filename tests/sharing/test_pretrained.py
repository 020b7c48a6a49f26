"""A shared model loads elsewhere, says what it is, and tells nothing about this machine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import ips
from ips import api
from ips.config_io import override, parse_config
from ips.errors import ConfigError, RunError
from ips.loading import FORMAT
from ips.sharing.card import cell
from ips.training import evaluate, train
from tests.cli.tiny import TINY
from tests.command import Outcome

SAVED = Path(__file__).parent.parent / "fixtures" / "shared-1"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run on a table in a folder whose name is nobody's business."""
    folder = tmp_path_factory.mktemp("secret-clinic")
    noise = np.random.default_rng(0)
    lines = ["path,grade,split"]
    for number, split in enumerate(["train"] * 4 + ["test"] * 2):
        pixels = noise.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        lines.append(f"{number}.png,{'low|<b>' if number % 2 else 'high'},{split}")
    (folder / "slides.csv").write_text("\n".join(lines))
    values = dict(TINY) | {
        "data": {"kind": "table", "csv": str(folder / "slides.csv"), "exclude": ["0.png"]},
        "patches": {"size": 16, "scale": 0.5},
        "tasks": {"grade": {"kind": "multiclass", "classes": 2}},
    }
    values.pop("readout", None)
    config = parse_config(override(values, ["encoder.weights=none"]), source="test")
    train(config, folder / "run", console=Console(quiet=True))
    evaluate(folder / "run", console=Console(quiet=True))
    (folder / "run/figures").mkdir(exist_ok=True)
    for name in ("training.png", "attention.png"):
        Image.new("L", (4, 4)).save(folder / "run/figures" / name)
    return folder / "run"


def test_a_shared_model_predicts_as_the_run(run: Path, tmp_path: Path) -> None:
    outcome = Outcome("share", run, "--out", tmp_path / "model", "--licence", "apache-2.0")
    assert outcome.code == 0, outcome.err
    image = run.parent / "1.png"
    here, there = ips.load(run).predict(image), ips.load(tmp_path / "model").predict(image)
    assert here.probabilities.keys() == there.probabilities.keys()
    assert torch.equal(here.logits["grade"], there.logits["grade"])


def test_nothing_private_is_shared(run: Path, tmp_path: Path) -> None:
    api.share(run, out=tmp_path)
    files = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.is_file()}
    assert "attention.png" not in files
    for content in files.values():
        assert b"secret-clinic" not in content
        assert b"0.png" not in content
    assert b"training.png" in files["README.md"]
    api.share(run, out=tmp_path, pictures=True)
    assert (tmp_path / "attention.png").is_file()


def test_the_card_gives_scores_and_limits_and_escapes_names(run: Path, tmp_path: Path) -> None:
    api.share(run, out=tmp_path, licence="mit")
    card = (tmp_path / "README.md").read_text()
    scores = json.loads((run / "test.json").read_text())["grade"]["scores"]
    for found in scores.values():
        assert f"| {found['score']:.3f} |" in card
    assert "For research, not for diagnosis." in card
    assert 'license: "mit"' in card
    assert "no column of groups" in card
    assert "<b>" not in card
    assert cell("low|<b>") in card
    assert "16 px, one every 16 px, scale 0.5" in card
    verdict = json.loads((run / "test.json").read_text())["grade"]["verdict"]
    assert f"**grade: {cell(verdict)}.**" in card


def test_a_model_without_test_scores_says_so(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "test.json").unlink()
    api.share(copy, out=tmp_path / "model")
    assert "was not scored on test images" in (tmp_path / "model/README.md").read_text()
    (copy / "test.json").write_text("[")
    with pytest.raises(RunError, match=r"test.json: damaged"):
        api.share(copy, out=tmp_path / "model")


def test_a_model_of_the_first_version_opens() -> None:
    """Saved by version 0.2.0; this must stay true in all later versions."""
    predictor = ips.load(SAVED)
    pixels = np.arange(40 * 60, dtype=np.uint32).reshape(40, 60) % 251
    found = predictor.predict(pixels.astype(np.uint8))
    expected = json.loads((SAVED / "expected.json").read_text())
    for task, logits in expected["logits"].items():
        torch.testing.assert_close(found.logits[task], torch.tensor(logits), rtol=1e-4, atol=1e-4)
    assert sorted(found.indices.tolist()) == expected["indices"]


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    shutil.copytree(SAVED, tmp_path / "model")
    values = json.loads((SAVED / "config.json").read_text()) | {"format": FORMAT + 1}
    (tmp_path / "model/config.json").write_text(json.dumps(values))
    with pytest.raises(RunError, match="newer version of ips"):
        ips.load(tmp_path / "model")


class Hub:
    """A stand-in for the hub: a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hf_hub_download(self, repo: str, file: str) -> str:
        return str(self.folder / repo / file)

    def create_repo(self, repo: str, *, private: bool, exist_ok: bool) -> str:
        (self.folder / repo).mkdir(parents=True, exist_ok=exist_ok)
        return f"https://hub/{repo}{' (private)' if private else ''}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, ignore_patterns: Any) -> None:
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)


def test_a_model_goes_to_the_hub_and_back(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hub.hf_hub_download)
    outcome = Outcome("share", run, "--hub", "me/model")
    assert outcome.code == 0, outcome.err
    assert "(private)" in outcome.err
    image = run.parent / "1.png"
    outcome = Outcome("predict", "hub:me/model", image, "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)


def test_what_goes_wrong_is_one_sentence(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("401 unauthorized\nmore")

    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: SimpleNamespace(create_repo=refuse))
    with pytest.raises(ConfigError, match=r"me/x: could not be uploaded .*401.*hf auth login"):
        api.share(run, hub="me/x")
    with pytest.raises(ConfigError, match="either --out"):
        api.share(run)
    with pytest.raises(ConfigError, match="is the run folder"):
        api.share(run, out=run)
    with pytest.raises(ConfigError, match="hub:OWNER/REPO"):
        ips.load("hub:nonsense")
