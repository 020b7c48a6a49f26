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
from ips.slides.coords import Resolution, slide_patches
from ips.slides.foundation import build_preset
from ips.slides.presets import PRESETS
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
    (out / "b.failed").write_text("b.tif cannot be read")
    assert "1 done, 1 failed" in invoke("slides", "status", out)[1]
    said = invoke("slides", "status", out, slides)[1]
    assert "1 done, 1 failed, 1 left" in said
    assert "b.tif cannot be read" in said
    assert "there is no such folder" in refused("slides", "status", tmp_path / "none")


def test_shares(slides: Path, tmp_path: Path) -> None:
    tissue, out = tmp_path / "tissue", tmp_path / "features"
    for shard, found in (("1/2", "tissue in 1 of 2 slides"), ("2/2", "tissue in 1 of 1 slides")):
        options = ("--patch-size", "32", "--shard", shard)
        assert found in invoke("slides", "tissue", slides, "--out", tissue, *options)[1]
    words = ("slides", "features", slides, "--out", out, "--coords", tissue, *THIN)
    assert "1 done, 1 without tissue" in invoke(*words, "--shard", "1/2")[1]
    assert invoke(*words, "--shard", "2/2")[1].endswith(f"{out}: 1 done")
    assert "2 done, 1 without tissue" in invoke("slides", "status", out, slides)[1]
    assert "--shard 0/2: expected NUMBER/COUNT" in refused(*words, "--shard", "0/2")


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
        (["--encoder", "conch"], "or a preset that `ips slides encoders` lists"),
        (["--encoder", "uni", "--stages", "2"], "--encoder uni has no --stages and --width"),
        ([*THIN, "--mean", "0.5,red"], "--mean 0.5,red: expected one number, or three"),
        (["--weights", "none.pth"], "none.pth: there is no such weights file"),
        (["--encoder", "hub:a/b", "--weights", "hub:c/d"], "are two different models"),
    ],
)
def test_mistakes(slides: Path, tmp_path: Path, words: list[str], said: str) -> None:
    assert said in refused("slides", "features", slides, "--out", tmp_path / "out", *words)
    assert not (tmp_path / "out").exists()


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


@pytest.fixture
def preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A slide of 1,024 px at 0.25 µm per pixel, and a folder with weights of the stand-in."""
    fake_timm.install(monkeypatch)
    pixels = np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), dtype=np.uint8)
    scale = {"resolution": (40000, 40000), "resolutionunit": "CENTIMETER"}
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", tile=(256, 256), **scale)
    folder = tmp_path / "virchow2"
    folder.mkdir()
    save_file(fake_timm.Tokens().state_dict(), folder / "model.safetensors")
    return tmp_path / "a.tif", folder


def test_a_preset_brings_its_patches_and_pixels(preset: tuple[Path, Path], tmp_path: Path) -> None:
    slide, weights = preset
    tissue, out = tmp_path / "tissue", tmp_path / "out"
    words = ("slides", "features", slide, "--encoder", "Virchow2", "--weights", weights)
    assert invoke(*words, "--dtype", "float32", "--out", out)[0] == 0
    bag = open_features(out / "a.h5")
    assert (len(bag), bag.extent, bag.attributes["patch_size"]) == (4, 448, 224)
    assert bag.attributes["slide"] == str(slide)
    assert bag.attributes["encoder"].endswith(", resize 224, crop 224, none, float32")
    pixels = slide_patches(slide, resolution=Resolution(224, mpp=0.5)).read(range(4)) / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in PRESETS["virchow2"].pixels)
    with torch.no_grad():
        expected = build_preset(PRESETS["virchow2"], weights=str(weights))((pixels - mean) / std)
    torch.testing.assert_close(bag.read(range(4)), expected, atol=1e-4, rtol=1e-4)

    # coordinates of the same preset are taken, others are not
    assert invoke("slides", "tissue", slide, "--encoder", "virchow2", "--out", tissue)[0] == 0
    assert invoke(*words, "--coords", tissue, "--out", tmp_path / "second")[0] == 0
    small = tmp_path / "small"
    assert invoke("slides", "tissue", slide, "--patch-size", "256", "--out", small)[0] == 0
    said = refused(*words, "--coords", small, "--out", tmp_path / "third")
    assert "256 px at 1 level-0 pixels per pixel, but 224 px at 2 were requested" in said
    own = ("--patch-size", "256", "--level", "0")
    assert invoke(*words, "--coords", small, *own, "--out", tmp_path / "fourth")[0] == 0


def test_features_where_trident_looks_for_them(preset: tuple[Path, Path], tmp_path: Path) -> None:
    slide, weights = preset
    words = ("slides", "features", slide, "--layout", "trident", "--out", tmp_path / "job")
    code, said = invoke(*words, "--encoder", "uni", "--weights", weights)
    assert code == 0
    file = tmp_path / "job" / "20x_256px_0px_overlap" / "features_uni_v1" / "a.h5"
    assert f"{file.parent}: 1 done" in said
    bag = open_features(file)
    assert (bag.layout.kind, bag.extent, len(bag)) == ("trident", 512, 4)
    assert bag.attributes["target_magnification"] == 20
    said = refused(*words, *THIN)
    assert "--layout trident: TRIDENT names its folders by patch size and magnification" in said
    assert invoke(*words, *THIN, "--patch-size", "512", "--mpp", "0.25")[0] == 0
    assert (tmp_path / "job" / "40x_512px_0px_overlap" / "features_thin-resnet" / "a.h5").exists()


def test_the_list_of_presets() -> None:
    code, said = invoke("slides", "encoders")
    assert code == 0
    assert "virchow2 │ 224 px at 0.5 µm │ 2,560 │ CC-BY-NC-ND-4.0 │ login" in said
    assert "dinov2-base │ 224 px │ 768 │ Apache-2.0 │ open" in said


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
