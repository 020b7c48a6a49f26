"""`ips slides features`: from slides to files that `ips train` takes; and files of other tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
import yaml
from safetensors.torch import save_file
from typer.testing import CliRunner

from ips.cli import app
from ips.nn import thin_resnet
from ips.patches import open_features
from ips.slides.encoder import default_device
from tests.nn import fake_timm
from tests.patches import feature_files as layouts

THIN = ("--encoder", "thin-resnet", "--width", "8", "--stages", "2", "--weights", "none")


def invoke(*words: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    return result.exit_code, " ".join(result.output.split())


def refused(*words: str | Path) -> str:
    code, said = invoke(*words)
    assert code == 1
    assert "Traceback" not in said
    return said.partition("ips: ")[2]


@pytest.fixture
def slides(tmp_path: Path) -> Path:
    """Two slides with tissue in the middle, and one without."""
    folder = tmp_path / "slides"
    folder.mkdir()
    for number, name in enumerate("abc"):
        pixels = np.full((256, 256, 3), 235, np.uint8)
        if name != "c":
            noise = np.random.default_rng(number).integers(0, 90, (128, 128, 3), dtype=np.uint8)
            pixels[64:192, 64:192] -= noise + 60
        tifffile.imwrite(folder / f"{name}.tif", pixels, photometric="rgb", tile=(64, 64))
    return folder


def test_from_tissue_to_features_to_a_training(slides: Path, tmp_path: Path) -> None:
    tissue, out = tmp_path / "tissue", tmp_path / "features"
    assert invoke("slides", "tissue", slides, "--out", tissue, "--patch-size", "32")[0] == 0
    words = ("slides", "features", slides, "--out", out, "--coords", tissue, *THIN)
    code, said = invoke(*words)
    assert code == 0  # a slide without tissue is reported, and is no error
    assert "2 done, 1 without tissue" in said
    assert "c.tif: no tissue" in said
    assert sorted(path.name for path in out.iterdir()) == ["a.h5", "b.h5", "c.empty"]
    bag = open_features(out / "a.h5")
    assert (len(bag), bag.shape, bag.extent) == (16, (16,), 32)
    assert bag.coords.min() == 64
    assert bag.coords.max() == 160
    before = (out / "a.h5").read_bytes()
    assert "2 done, 1 without tissue" in invoke(*words)[1]
    assert (out / "a.h5").read_bytes() == before

    table = tmp_path / "slides.csv"
    (out / "d.h5").write_bytes(before)
    rows = ("features/a.h5,0,train", "features/b.h5,1,train", "features/d.h5,0,test")
    table.write_text("\n".join(["path,tumor,split", *rows]) + "\n")
    trained(table, tmp_path, width=16)


def test_status(slides: Path, tmp_path: Path) -> None:
    out = tmp_path / "features"
    words = ("slides", "features", slides / "a.tif", "--out", out, "--patch-size", "64", *THIN)
    assert invoke(*words)[0] == 0
    (out / "b.claim").write_text('{"host": "node7", "pid": 12}')
    assert "1 done, 1 in progress" in invoke("slides", "status", out)[1]
    said = invoke("slides", "status", out, slides)[1]
    assert "1 done, 1 in progress, 1 left" in said
    assert "process 12 on node7" in said
    assert "there is no such folder" in refused("slides", "status", tmp_path / "none")


def test_a_slide_that_cannot_be_read(slides: Path, tmp_path: Path) -> None:
    bad = slides / "b.tif"
    bad.write_bytes(bad.read_bytes()[:3000])
    out = tmp_path / "features"
    words = ("slides", "features", slides, "--out", out, "--patch-size", "64", *THIN)
    said = refused(*words)
    assert "b.tif" in said
    assert "--skip-errors" in said
    assert sorted(path.name for path in out.iterdir()) == ["a.h5", "b.failed"]
    code, said = invoke(*words, "--skip-errors")
    assert code == 1
    assert "2 done, 1 failed" in said
    assert sorted(path.name for path in out.iterdir()) == ["a.h5", "b.failed", "c.h5"]


def test_weights_say_what_they_are_of(slides: Path, tmp_path: Path) -> None:
    """As `ips pretrain` writes them."""
    net = thin_resnet(stages=1, width=8)
    config = {"encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "inputs": 3}}
    file = tmp_path / "encoder.safetensors"
    save_file(net.state_dict(), file, metadata={"config": json.dumps(config)})
    out = tmp_path / "features"
    words = ("slides", "features", slides / "a.tif", "--patch-size", "64", "--dtype", "float32")
    assert invoke(*words, "--weights", file, "--normalise", "none", "--out", out)[0] == 0
    bag = open_features(out / "a.h5")
    assert "thin-resnet encoder.safetensors" in bag.attributes["encoder"]
    pixels = torch.from_numpy(tifffile.imread(slides / "a.tif")[64:128, 128:192])
    with torch.no_grad():
        expected = net.eval()(pixels.permute(2, 0, 1)[None] / 255)
    assert bag.coords[6].tolist() == [128, 64]
    torch.testing.assert_close(bag.read([6]), expected, atol=1e-4, rtol=1e-4)
    # other weights, the same folder
    assert "give another output folder" in refused(*words, *THIN, "--out", out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--encoder", "resnet50"], "needs --weights: a file, imagenet or hub:OWNER/REPO"),
        (["--encoder", "resnet51"], "choose one of resnet18, resnet50, thin-resnet"),
        ([*THIN, "--mean", "0.5,red"], "--mean 0.5,red: expected one number, or three"),
        (["--weights", "none.pth"], "none.pth: there is no such weights file"),
        (["--encoder", "hub:a/b", "--weights", "hub:c/d"], "are two different models"),
    ],
)
def test_mistakes(slides: Path, tmp_path: Path, words: list[str], said: str) -> None:
    assert said in refused("slides", "features", slides, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


def test_processes_take_turns_with_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert default_device() == torch.device("cuda:0")
    for rank, device in (("1", "cuda:1"), ("3", "cuda:1"), ("2", "cuda:0")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert default_device() == torch.device(device)


@pytest.mark.parametrize(
    ("encoder", "asked"), [("timm:vit_small", "vit_small"), ("hub:owner/uni", "hf-hub:owner/uni")]
)
def test_encoders_of_timm(
    slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str, asked: str
) -> None:
    created = fake_timm.install(monkeypatch)
    words = ("slides", "features", slides / "c.tif", "--patch-size", "64", "--normalise", "none")
    code, _ = invoke(*words, "--encoder", encoder, "--out", tmp_path / "out")
    assert code == 0
    assert created == [(asked, {"pretrained": True, "num_classes": 0})]
    stored = open_features(tmp_path / "out" / "c.h5").read([0])[0]
    colour = (235 / 255 - torch.tensor(fake_timm.MEAN)) / torch.tensor(fake_timm.STD)
    expected = (colour.sum() + 1).expand(8).half()  # all weights are 1
    torch.testing.assert_close(stored, expected, rtol=1e-3, atol=0)


def test_a_missing_timm_is_one_sentence(
    slides: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("slides", "features", slides, "--out", tmp_path / "out", "--encoder", "timm:vit")
    monkeypatch.setitem(sys.modules, "timm", None)
    assert "pip install" in refused(*words)


def trained(table: Path, folder: Path, *, width: int) -> None:
    """`ips train` on a table of features."""
    config = {
        "data": {"kind": "table", "csv": str(table)},
        "patches": {"slide_mpp": 0.25},
        "encoder": {"name": "projector", "dim": 8},
        "select": {"keep": 4, "chunk": 4, "load": "sequential"},
        "aggregate": {"heads": 2},
        "train": {"epochs": 1, "batch": 2, "warmup": 0},
        "tasks": {"tumor": {"kind": "binary", "metric": "accuracy"}},
    }
    (folder / "own.yaml").write_text(yaml.safe_dump(config))
    run = folder / "run"
    code, said = invoke("train", folder / "own.yaml", "--run", run)
    assert code == 0, said
    assert yaml.safe_load((run / "config.yaml").read_text())["encoder"]["inputs"] == width


@pytest.mark.parametrize("name", ["clam", "trident", "stamp", "paper"])
def test_features_of_other_tools_are_trained_on_unchanged(tmp_path: Path, name: str) -> None:
    write, group, *_ = layouts.LAYOUTS[name]
    rows = ["path,tumor,split"]
    for number, split in enumerate(["train", "train", "test", "test"]):
        write(tmp_path / f"{number}.h5")
        address = f"{number}.h5" if group is None else f"{number}.h5::{group}"
        rows.append(f"{address},{number % 2},{split}")
    (tmp_path / "slides.csv").write_text("\n".join(rows))
    trained(tmp_path / "slides.csv", tmp_path, width=layouts.D)
