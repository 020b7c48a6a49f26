"""Each benchmark runs at its tiny size and leaves JSON, a picture and a table."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import ips
import ips.cli.bench
from ips.bench.memory import bench_memory
from ips.bench.memory_step import Step, peak_of_step
from ips.bench.peak import Peak, fresh, peak_of
from ips.bench.read import _ahead
from ips.bench.report import Report, name_of
from ips.bench.rounds import Ratio, in_turns, paired
from ips.bench.selection import bench_selection
from ips.cli.app import app
from ips.errors import ConfigError, IPSError
from ips.images import open_image

CPU = torch.device("cpu")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure in this process: a fresh one takes seconds to import torch."""

    def run(work: Callable[..., Peak], *args: object) -> Peak:
        return work(*args)

    monkeypatch.setattr("ips.bench.memory.fresh", run)
    monkeypatch.setattr("ips.bench.stored.fresh", run)


def silent(_: str) -> None:
    pass


def saved(report: Report, folder: Path) -> dict[str, Any]:
    """What a report wrote, after a look at its picture."""
    text, picture = report.save(folder)
    with Image.open(picture) as image:
        assert min(image.size) > 200
        assert np.asarray(image.convert("L")).std() > 5
    assert sorted(p.name for p in folder.iterdir()) == sorted([text.name, picture.name])
    data: dict[str, Any] = json.loads(text.read_text())
    assert data["benchmark"] == report.name
    assert {"cpus", "torch", "threads", "device"} <= set(data["machine"])
    assert report.rows
    assert all(len(row) == len(report.header) for row in report.rows)
    return data


@pytest.mark.usefixtures("here")
def test_selection(tmp_path: Path) -> None:
    cases = ("megapixel-mnist", "features")
    report = bench_selection(cases, rounds=1, device=CPU, quick=True, log=silent)
    data = saved(report, tmp_path)
    mnist, features = data["cases"]
    assert set(mnist["seconds"]) == {"baseline", "ours", "ours, without embed-once"}
    assert set(mnist["ratios"]["ours"]) == {"median", "min", "max"}
    for case in (mnist, features):
        for verdict in case["agreement"].values():
            assert verdict["equal"] == verdict["images"]
    assert set(features["memory"]) == {"baseline", "ours"}
    assert features["memory_ratio"] >= 0


def test_command_line(tmp_path: Path) -> None:
    words = ["bench", "selection", "--quick", "--rounds", "1", "--case", "dense"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "2 of 2 images equal" in " ".join(result.output.replace("│", " ").split())
    assert (tmp_path / "selection-dense.png").exists()
    words = ["bench", "step", "--quick", "--rounds", "1", "--batch", "2"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["memory", "--arm", "greedy"], "--arm greedy: take eager"),
        (["memory", "--sides", "1k"], "--sides 1k: give whole numbers"),
        (["step", "--device", "tpu"], "--device tpu: take cpu or cuda"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.usefixtures("here")
def test_memory(tmp_path: Path) -> None:
    images = tmp_path / "images"
    report = bench_memory(
        images, arms=("lazy", "cnn"), batch=2, limit_gb=1e-3, quick=True, log=silent
    )
    data = saved(report, tmp_path / "out")
    assert [(m["arm"], m["side"]) for m in data["measured"]] == [("lazy", 200), ("lazy", 400)]
    assert all(m["peak"] >= m["before"] > 0 for m in data["measured"])
    assert "would exceed 0.001 GB" in data["not run"]["cnn"]
    assert data["growth"]["lazy"] >= 1
    assert data["growth"]["cnn"] is None
    made = {path.name: path.stat().st_mtime_ns for path in images.iterdir()}
    assert len(made) == 6  # two of each side, and the small ones that the CNN is judged by

    every = sorted(images.glob("*-200-*.tif"))
    for arm in ("eager", "sequential", "cnn"):
        assert peak_of_step(Step(arm, every, 4, 16)).peak > 0
    with pytest.raises(ConfigError, match="no arm greedy"):
        peak_of_step(Step("greedy", every, 4, 16))
    assert {path.name: path.stat().st_mtime_ns for path in images.iterdir()} == made


def test_read(tmp_path: Path) -> None:
    from ips.bench.read import ORDERS, READERS, bench_read

    data = saved(bench_read(rounds=1, quick=True, log=silent), tmp_path)
    rates = data["patches_per_second"]
    assert set(rates) == set(READERS)
    assert all(set(kinds) == set(ORDERS) and min(kinds.values()) > 0 for kinds in rates.values())
    assert set(data["ahead"]["ratio"]) == {"median", "min", "max"}


def test_arms_take_turns() -> None:
    seen: list[str] = []
    arms = {name: lambda name=name: seen.append(name) for name in "AB"}
    taken = in_turns(arms, rounds=3, device=CPU, log=silent)
    assert "".join(seen) == "AB" + "AB" + "BA" + "AB"
    assert all(len(seconds) == 3 for seconds in taken.seconds.values())
    assert paired([2.0, 9.0, 4.0], [1.0, 3.0, 1.0]) == Ratio(median=3.0, min=2.0, max=4.0)


def test_peak_sees_what_is_let_go_again() -> None:
    found = fresh(peak_of, partial(np.ones, 40_000_000, np.uint8))
    assert found.above >= 30_000_000
    assert Peak(before=5, peak=12).above == 7


def test_fresh_process() -> None:
    assert fresh(os.getpid) != os.getpid()
    with pytest.raises(IPSError, match="for want of memory"):
        fresh(os._exit, 1)


@pytest.fixture
def gigapixel() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "make_gigapixel.py"
    spec = importlib.util.spec_from_file_location("make_gigapixel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_gigapixel_slide(gigapixel: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "slide.tif"
    gigapixel.main([str(path), "--side", "2048"])
    with ips.open_patches(path, patch_size=256) as patches:  # type: ignore[attr-defined]
        assert patches.image.level_dimensions == ((2048, 2048), (1024, 1024))
        assert patches.image.mpp == pytest.approx((0.25, 0.25))
        assert len(patches) == 64
        fine = patches.read(range(64)).float()
    with ips.open_patches(path, patch_size=128, mpp=0.5) as patches:  # type: ignore[attr-defined]
        coarse = patches.read(range(64)).float()
    background = (fine > 250).flatten(1).all(dim=1)
    assert 16 < background.sum() < 64
    # Levels are drawn, not shrunk, so they agree in the mean of a patch and not in every pixel.
    assert (fine.mean(dim=(2, 3)) - coarse.mean(dim=(2, 3))).abs().max() < 4
    assert [p.name for p in tmp_path.iterdir()] == ["slide.tif"]


def test_gigapixel_leaves_nothing_half_made(gigapixel: ModuleType, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gigapixel.write_slide(tmp_path / "slide.tif", side=2048, tick=stop)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        gigapixel.main([str(tmp_path / "slide.tif"), "--side", "100"])


def test_part_of_a_benchmark_has_files_of_its_own() -> None:
    assert name_of("memory", ["lazy", "eager"], of=("eager", "lazy")) == "memory"
    assert name_of("memory", ["lazy"], of=("eager", "lazy")) == "memory-lazy"


def test_reading_ahead_of_a_picture_with_few_patches() -> None:
    picture = np.zeros((128, 128, 3), np.uint8)
    assert _ahead(partial(open_image, picture), 64, rounds=1, quick=True, log=silent)
