"""The public names of `ips`, and the functions of `ips.api` at tiny size."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import ips
from ips import api
from ips.data.synthetic.megapixel_mnist import MegapixelMNIST
from ips.errors import ConfigError, ImageError, IPSError
from ips.pretraining.settings import Settings
from ips.slides.coords import Resolution
from ips.slides.encoder import build_extractor
from tests.cli.tiny import TINY


def test_the_public_names_are_these() -> None:
    assert sorted(ips.__all__) == [
        "IPSError",
        "IPSNet",
        "MemoryPatches",
        "PatchSource",
        "Prediction",
        "Predictor",
        "__version__",
        "api",
        "load",
        "nn",
        "open_image",
        "open_patches",
        "selection",
    ]
    assert [name for name in ips.__all__ if not hasattr(ips, name)] == []
    assert dir(ips) == ips.__all__


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, ips.cli; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_predictions_do_not_wait_for_figures_or_lightning() -> None:
    code = """
import sys, ips
ips.IPSNet, ips.open_patches, ips.selection, ips.nn, ips.load, ips.Predictor
print([module for module in sys.modules if "ips.explain.fig" in module])
import ips.viewer
print("lightning" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]


def test_every_function_of_the_api_is_documented() -> None:
    functions = [getattr(api, name) for name in api.__all__]
    functions = [function for function in functions if inspect.isfunction(function)]
    assert len(functions) >= 16
    for function in functions:
        parameters = inspect.signature(function).parameters
        for name in parameters:
            text = f"{api.__doc__}{function.__doc__}"
            assert re.search(rf"\b{name}\b", text), f"{function.__name__}: {name}"
        kinds = [parameter.kind for parameter in parameters.values()]
        assert kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) <= 2, function.__name__


def test_the_api_does_not_import_typer_or_torch() -> None:
    code = "import sys, ips.api; print('typer' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config, a trained run and an image."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    received: list[api.Evaluation] = []
    trained = api.train(
        folder / "tiny.yaml",
        run=folder / "run",
        settings=["select.keep=3"],
        on_scores=received.append,
    )
    assert received == [trained]
    assert trained.metrics == {"majority": "accuracy", "multi": "exact-match"}
    assert (folder / "run/figures/attention.png").is_file()
    Image.fromarray(MegapixelMNIST(200, count=1)[0][0].dense()).save(folder / "digits.png")
    return folder


def test_evaluate_repeats_the_scores_of_training(home: Path) -> None:
    before = json.loads((home / "run/test.json").read_text())
    scores = {task: result["score"] for task, result in before.items()}
    assert api.evaluate(home / "run").scores == scores


def test_predict_yields_answers_and_draws_figures(home: Path, tmp_path: Path) -> None:
    images = [home / "digits.png"]
    (prediction,) = api.predict(home / "run", images, figures=tmp_path)
    values = prediction.as_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["tasks"]["majority"]["answer"] == prediction.answers["majority"]
    assert len(values["kept"]) == 3  # select.keep of the fixture
    assert [file.name for file in tmp_path.iterdir()] == ["digits-attention.png"]


def test_predict_raises_or_reports_errors(home: Path) -> None:
    images = [home / "no.png", home / "digits.png"]
    with pytest.raises(ImageError, match=r"no\.png"):
        list(api.predict(home / "run", images))
    errors: list[IPSError] = []
    (prediction,) = api.predict(home / "run", images, on_error=errors.append)
    assert prediction.image == str(images[1])
    assert [type(error) for error in errors] == [ImageError]


def test_explain_writes_files(home: Path, tmp_path: Path) -> None:
    (image,) = api.explain(home / "run", [home / "digits.png"], out=tmp_path)
    assert sorted(image.files) == sorted(tmp_path.glob("[!.]*"))
    assert image.patches == 16
    assert image.notes == []
    with pytest.raises(ConfigError, match="no such task"):
        list(api.explain(home / "run", [home / "digits.png"], out=tmp_path, task="x"))


def test_report_writes_a_page(home: Path, tmp_path: Path) -> None:
    page = api.report(home / "run", out=tmp_path / "page.html", examples=1)
    assert page == tmp_path / "page.html"
    assert "majority" in page.read_text()
    assert "constant answer" in page.read_text()  # whether the training has begun


def test_view_passes_the_address_of_the_page(home: Path) -> None:
    addresses: list[str] = []

    def stop(address: str) -> None:
        addresses.append(address)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        api.view(home / "run", [home / "digits.png"], on_ready=stop)
    assert addresses[0].startswith("http://127.0.0.1:")


def test_from_slides_to_features(tmp_path: Path) -> None:
    slides, tissue, features = (tmp_path / name for name in ("slides", "tissue", "features"))
    slides.mkdir()
    pixels = np.full((128, 128, 3), 240, np.uint8)
    pixels[32:96, 32:96] = np.random.default_rng(0).integers(60, 200, (64, 64, 3))
    Image.fromarray(pixels).save(slides / "a.png")
    (found,) = api.find_tissue([slides], out=tissue, resolution=Resolution(32))
    assert (found.kept, found.total) == (4, 16)
    assert (tissue / "thumbnails/a.png").is_file()

    settings = Settings(
        data=(slides,),
        coords=tissue,
        encoder="thin-resnet",
        stages=1,
        width=8,
        hidden=8,
        projection=4,
        epochs=1,
        batch=4,
        optimizer="adamw",
    )
    weights = api.pretrain(settings, run=tmp_path / "byol")
    assert weights == tmp_path / "byol/encoder.safetensors"

    extractor = build_extractor(weights=str(weights))
    states = api.extract_features([slides], out=features, extractor=extractor, coords=tissue)
    assert [(state.name, state.state) for state in states] == [("a", "done")]
    assert api.feature_status(features, slides=[slides]) == states
    assert ips.open_patches(features / "a.h5").shape == (8,)
    with pytest.raises(ConfigError, match="no such folder"):
        api.feature_status(tmp_path / "none")


def test_experiment_returns_files_and_failures(tmp_path: Path) -> None:
    settings = ["data.side=112", "data.train=4", "data.test=4", "train.epochs=1", "train.batch=2"]
    settings += ["data.validation=4"]
    result = api.experiment(
        "megapixel-mnist",
        out=tmp_path,
        seeds=1,
        methods=["rps"],
        part="scores",
        settings=[*settings, "encoder.width=16", "encoder.stages=1"],
    )
    assert result.failures == []
    assert [file.name for file in result.files] == ["results.csv", "table.md", "figure.png"]


def test_a_benchmark_returns_a_report() -> None:
    lines: list[str] = []
    report = api.bench_read(rounds=1, quick=True, log=lines.append)
    assert len(report.rows) > 0
    assert lines
    with pytest.raises(ConfigError, match="expected one of auto, cpu, cuda, mps"):
        api.bench_step(device="tpu")
