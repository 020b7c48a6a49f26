"""Each benchmark at its tiny size: its numbers, JSON, chart and table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ips.bench import features, memory
from ips.bench.memory import bench_memory
from ips.bench.memory_step import measure_step
from ips.bench.peak import Peak
from ips.bench.read import ORDERS, bench_read, prefetch_gain
from ips.bench.report import Report, report_name
from ips.bench.speed import bench_selection
from ips.cli.app import app
from ips.images import open_image

CPU = torch.device("cpu")
MB = 1_000_000


def silent(_: str) -> None:
    pass


def saved(report: Report, folder: Path) -> dict[str, Any]:
    """The JSON of a report, after a check of its chart and table."""
    text, chart = report.save(folder)
    with Image.open(chart) as image:
        assert min(image.size) > 200
        assert np.asarray(image.convert("L")).std() > 5
    assert sorted(p.name for p in folder.iterdir()) == sorted([text.name, chart.name])
    data: dict[str, Any] = json.loads(text.read_text())
    assert data["benchmark"] == report.name
    assert data["quick"] is True
    assert {"cpus", "torch", "threads", "device"} <= set(data["machine"])
    assert report.rows
    assert all(len(row) == len(report.header) for row in report.rows)
    return data


def test_selection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    above = {"baseline": 60 * MB, "ours": 20 * MB}

    def measure(function: Callable[..., Peak], arm: str, *args: object) -> Peak:
        assert function(arm, *args).before > 10 * MB  # in this process, which has torch loaded
        return Peak(before=5 * MB, peak=5 * MB + above[arm])

    monkeypatch.setattr(features, "run_in_new_process", measure)
    cases = ("megapixel-mnist", "features")
    report = bench_selection(cases, rounds=1, device=CPU, quick=True, log=silent)
    data = saved(report, tmp_path)
    mnist, bag = data["cases"]
    assert set(mnist["seconds"]) == {"baseline", "ours", "ours, without embed-once"}
    for case, images in ((mnist, 2), (bag, 1)):
        for arm, ratio in case["ratios"].items():
            expected = case["seconds"]["baseline"][0] / case["seconds"][arm][0]
            assert len(case["seconds"][arm]) == (1 if case is mnist else 3)
            assert ratio["min"] <= ratio["median"] <= ratio["max"]
            assert case is bag or ratio["median"] == pytest.approx(expected)
            assert case["agreement"][arm]["equal"] == images
    assert bag["memory"]["ours"] == {"before": 5 * MB, "peak": 25 * MB, "above": 20 * MB}
    assert bag["memory_ratio"] == 3
    assert data["notes"][0].endswith(
        "60 MB above the start of the process with the bag in "
        "memory (a bag has 0 MB), 20 MB from the file: 3.0 times less"
    )


def test_command_line(tmp_path: Path) -> None:
    words = ["bench", "selection", "--quick", "--rounds", "1", "--case", "dense"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "2 of 2 images equal" in " ".join(result.output.replace("│", " ").split())
    assert (tmp_path / "selection-dense.png").exists()
    words = ["bench", "step", "--quick", "--rounds", "1", "--batch", "2"]
    result = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "first step: the same 12 patches, 2 of 2 images equal" in " ".join(result.output.split())
    found = json.loads((tmp_path / "step.json").read_text())["cases"][0]
    assert found["settings"]["batch"] == 2
    assert {arm: len(seconds) for arm, seconds in found["seconds"].items()} == {
        "baseline": 1,
        "ours": 1,
    }


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["memory", "--arm", "greedy"], 1, "--arm greedy: "),
        (["memory", "--sides", "1k"], 1, "--sides 1k: "),
        (["step", "--device", "tpu"], 2, "'tpu' is"),
    ],
)
def test_wrong_options_give_one_sentence(words: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(app, ["bench", *words])
    assert result.exit_code == code
    assert message in result.output
    assert "Traceback" not in result.output


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = {("lazy", 200): 200 * MB, ("lazy", 400): 250 * MB}
    peaks |= {("cnn", 112): 104 * MB, ("cnn", 200): 120 * MB}
    calls: Counter[tuple[str, int]] = Counter()

    def measure(function: object, arm: str, paths: list[Path], keep: int, width: int) -> Peak:
        assert (function, len(paths), keep, width) == (measure_step, 2, 4, 16)
        key = arm, open_image(paths[0]).dimensions[0]
        calls[key] += 1
        noise = (5 * MB, 0, -5 * MB)[calls[key] - 1]  # the median of three is exact
        return Peak(before=100 * MB, peak=peaks[key] + noise)

    monkeypatch.setattr(memory, "run_in_new_process", measure)
    report = bench_memory(
        tmp_path / "images", arms=("lazy", "cnn"), batch=2, limit_gb=0.17, quick=True, log=silent
    )
    data = saved(report, tmp_path / "out")
    # At 400 px the CNN would need 100 MB and four times the 20 MB that it needs at 200 px.
    stopped = "cnn: not run from 400 px on, where it would exceed 0.17 GB (about 0.2 GB)"
    assert data["not run"] == {"cnn": stopped}
    assert [(m["arm"], m["side"], m["peak"]) for m in data["measured"]] == [
        ("lazy", 200, 200 * MB),
        ("lazy", 400, 250 * MB),
        ("cnn", 200, 120 * MB),
    ]
    assert data["growth"] == {"lazy": 1.25, "cnn": None}
    assert data["notes"] == ["lazy: the largest peak is 25.0 % above the smallest", stopped]
    assert report.rows == [("200", "0.200 GB", "0.120 GB"), ("400", "0.250 GB", "not run")]
    assert set(calls.values()) == {3}


def test_memory_reuses_its_images(tmp_path: Path) -> None:
    paths = memory._images(tmp_path, 200, 2)
    written = [path.stat().st_mtime_ns for path in paths]
    for arm in ("eager", "sequential", "lazy", "cnn"):
        assert measure_step(arm, paths, 4, 16).before > 10 * MB
    assert memory._images(tmp_path, 200, 2) == paths
    assert [path.stat().st_mtime_ns for path in paths] == written
    assert len(list(tmp_path.iterdir())) == 2


def test_read(tmp_path: Path) -> None:
    data = saved(bench_read(rounds=1, quick=True, log=silent), tmp_path)
    counts = dict(zip(ORDERS, (8 * 8, 8 * 8, 15 * 15), strict=True))  # patches of 64 in 512 px
    readers = {"tiled TIFF", "TIFF in strips", "PNG", "npy", "OpenSlide"}
    assert set(data["patches_per_second"]) == readers
    for reader, rates in data["patches_per_second"].items():
        for order, rate in rates.items():
            seconds = median(data["seconds"][f"{reader}, {order}"])
            assert rate * seconds == pytest.approx(counts[order])


def test_prefetching_of_an_image_with_few_patches() -> None:
    pixels = np.zeros((128, 128, 3), np.uint8)
    found = prefetch_gain(partial(open_image, pixels), 64, rounds=1, quick=True, log=silent)
    seconds = found["seconds"]
    assert set(seconds) == {"read only", "embed only", "read, then embed", "prefetch"}
    expected = seconds["read, then embed"][0] / seconds["prefetch"][0]
    assert found["ratio"].median == pytest.approx(expected)


def test_part_of_a_benchmark_has_its_own_files() -> None:
    assert report_name("memory", ["lazy", "eager"], of=("eager", "lazy")) == "memory"
    assert report_name("memory", ["lazy"], of=("eager", "lazy")) == "memory-lazy"
