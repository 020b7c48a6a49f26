"""Exported models give the answers of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ips import api
from ips import export as exporting
from ips.errors import ConfigError, IPSError
from ips.export import export_model
from ips.models.exporting import WholeModel
from ips.nn import thin_resnet
from ips.predictor import Predictor
from tests.models.small_net import KEEP, D, build, memory

TASKS: dict[str, Any] = {
    "majority": list("abcde"),
    "multi": {"kind": "multilabel", "names": list("xyz")},
}
PARTS = ("encoder", "aggregation", "model")


def predictor(**options: Any) -> Predictor:
    size, mpp = memory(1).patches.shape[-1], options.pop("mpp", None)
    patches = {"size": size} | ({} if mpp is None else {"mpp": mpp})
    return Predictor.from_net(build(**options).eval(), tasks=TASKS, patches=patches)


def test_the_whole_model_selects_and_answers_as_the_network() -> None:
    net, image = build(position=True).eval(), memory(23, seed=4)
    whole = WholeModel(net, patches=23, seed=7).eval()
    with torch.no_grad():
        found = whole(image.patches)
    expected = net.predict(image, seed=7)
    assert sorted(found["indices"].tolist()) == sorted(expected.indices.tolist())
    for task, logits in expected.logits.items():
        torch.testing.assert_close(found[task], logits, rtol=1e-5, atol=1e-5)


def test_all_parts_are_written_in_all_formats(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = export_model(predictor(), tmp_path, formats=("torch", "onnx"), patches=12)
    names = [f"{part}.{end}" for end in ("pt2", "onnx") for part in PARTS]
    assert [file.path.name for file in files] == names
    assert all(file.path.is_file() and file.difference <= 1e-5 for file in files)
    assert capfd.readouterr().err == ""  # no warnings of PyTorch


def test_a_file_that_differs_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "TOLERANCE", -1.0)
    with pytest.raises(IPSError, match="so it was not written"):
        export_model(predictor(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_patch_level_head_goes_to_wsinfer(tmp_path: Path) -> None:
    colour = thin_resnet(stages=1, width=D, channels=3, norm=True)
    model = predictor(encoder=colour, readout=True, mpp=0.5)
    (file,) = export_model(model, tmp_path, formats=("wsinfer",))
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["spacing_um_px"] == 0.5
    assert about["num_classes"] == len(about["class_names"])
    script = torch.jit.load(str(file.path))
    size = about["patch_size_pixels"]
    assert script(torch.zeros(2, 3, size, size)).shape == (2, about["num_classes"])


@pytest.mark.parametrize(
    ("options", "formats", "patches", "message"),
    [
        ({}, ("wsinfer",), None, "no patch-level head"),
        ({"readout": True}, ("wsinfer",), None, "patches.mpp"),
        ({"skip_blank": True}, ("torch",), 12, "select.skip_blank"),
        ({}, ("pickle",), None, "format pickle"),
        ({}, ("torch",), KEEP - 1, f"keeps {KEEP}"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    tmp_path: Path,
    options: dict[str, Any],
    formats: tuple[str, ...],
    patches: int | None,
    message: str,
) -> None:
    with pytest.raises(ConfigError, match=message):
        api.export(predictor(**options), out=tmp_path, formats=formats, patches=patches)
    assert not list(tmp_path.iterdir())
