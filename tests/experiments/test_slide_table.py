"""Table 2: synthetic slides at laptop scale, and its costs at the paper's size without slides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import pytest

from ips.config import Config
from ips.data.objects import AnnotationFolder
from ips.data.regions import patches_on
from ips.data.table import read_table
from ips.experiments import EXPERIMENTS, Plan, run_experiment
from ips.experiments import runner as module
from ips.experiments.arms import OBJECTS, TABLE, Arm
from ips.experiments.drawn_slides import DrawnSlides, prepare_drawn_slides
from ips.experiments.efficiency import Cost, measure_here
from ips.experiments.extrapolation import extrapolate, measure_or_compute
from ips.experiments.figures import draw_memory, draw_scores
from ips.experiments.stand_in import PATCHES, with_stand_in, write_stand_in
from ips.experiments.tables import Result, markdown
from ips.patches import open_features
from ips.training import build_data
from tests.experiments.small import quiet

TINY = DrawnSlides(
    train=4,
    validation=2,
    test=2,
    side=1024,
    width=16,
    stages=1,
    patches_per_slide=8,
    epochs=1,
    batch=16,
)


def plan(folder: Path, scale: Any = "paper", **changes: Any) -> Plan:
    values: dict[str, Any] = {"seeds": 1, "folder": folder}
    return Plan(EXPERIMENTS["camelyon16"], scale, **(values | changes))


def test_slides_are_prepared_once_and_the_preparation_resumes(tmp_path: Path) -> None:
    prepare_drawn_slides(tmp_path, sizes=TINY)
    rows = read_table(tmp_path / TABLE, tasks=["tumor"])
    assert [row.split for row in rows] == ["train"] * 4 + ["validation"] * 2 + ["test"] * 2
    for split in ("train", "validation", "test"):  # half of each split is abnormal
        labels = [row.labels["tumor"] for row in rows if row.split == split]
        assert labels.count("1") == labels.count("0")
    assert {open_features(row.path).shape for row in rows} == {(16,)}
    truth = AnnotationFolder(tmp_path / OBJECTS, origin=lambda image: (0, 0))
    for row in rows:
        clusters, source = truth.regions(row.path, "tumor"), open_features(row.path)
        assert clusters is not None
        assert bool(clusters) == (row.labels["tumor"] == "1")
        assert source.extent == 64
        assert all(len(patches_on(c, source.coords, extent=64)) for c in clusters)
    pretrained = (tmp_path / "byol" / "config.yaml").read_text()
    assert "slides: 4\n" in pretrained  # training slides only

    files = [row.path for row in rows]
    before = {file: file.stat().st_mtime_ns for file in files}
    files[3].unlink()
    prepare_drawn_slides(tmp_path, sizes=TINY)
    after = {file: file.stat().st_mtime_ns for file in files}
    assert [file for file in files if after[file] != before[file]] == [files[3]]


def test_the_laptop_scale_trains_on_its_own_slides(tmp_path: Path) -> None:
    own = plan(tmp_path, "laptop")
    assert {own.config(arm, 0).data.csv for arm in own.arms()} == {  # type: ignore[union-attr]
        tmp_path / "data" / TABLE
    }
    assert own.config(own.arms()[0], 0).data.objects == tmp_path / "data" / OBJECTS  # type: ignore[union-attr]
    other = plan(tmp_path, "laptop", settings=["data.csv=mine.csv"])
    assert other.prepared is None
    assert other.config(other.arms()[0], 0).data.csv == Path("mine.csv")  # type: ignore[union-attr]


def test_both_scales_have_the_rows_of_the_paper() -> None:
    for scale, again in (("laptop", 3), ("paper", 0)):  # lines of IPS as published
        methods = [arm.method for arm in plan(Path("x"), scale).arms()]
        assert methods == ["ips"] * (4 + again) + ["deepmil"] * 3 + ["topmil"] * 3


def test_one_stored_bag_serves_as_all_images(tmp_path: Path) -> None:
    whole = plan(tmp_path)
    config = whole.config(whole.arms()[0], 0)
    write_stand_in(tmp_path, patches=70, features=8)
    data = build_data(with_stand_in(config, tmp_path))
    assert len(data.train) == 270
    assert {(len(source), source.shape) for source, _ in (data.train[i] for i in (0, 269))} == {
        (70, (8,))
    }
    with h5py.File(tmp_path / "features.h5") as file:
        assert file["slide_000/img"].id.get_storage_size() == 96 * 8 * 2  # whole chunks of 32 rows
        assert file["slide_269/img"] == file["slide_000/img"]


def test_features_of_real_slides_are_not_replaced(tmp_path: Path) -> None:
    table = tmp_path / "camelyon16.csv"
    table.write_text("path,tumor,split\n")
    whole = plan(tmp_path, settings=[f"data.csv={table}"])
    config = whole.config(whole.arms()[0], 0)
    assert with_stand_in(config, tmp_path / "stand-in") is config


def test_a_missing_table_that_the_user_names_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured in this process, because PyTorch need not be loaded again for an error."""
    monkeypatch.setattr(
        module,
        "measure_cost",
        lambda config, steps: measure_here(config.model_dump(mode="json"), steps),
    )
    mistyped = plan(tmp_path, scores=False, methods=["topmil"], settings=["data.csv=gone.csv"])
    _, failures = run_experiment(mistyped, console=quiet())
    assert len(failures) == 3
    assert all("gone.csv" in failure for failure in failures)
    assert not (tmp_path / "stand-in").exists()


def linear_cost(config: Config) -> Cost:
    N = config.patches.sample or PATCHES
    return Cost(memory_gb=0.5 + 0.3 * N / 1000, select_ms=None, rest_ms=2 + N / 100)


@pytest.mark.parametrize(
    ("N", "computed"), [("10,000", False), ("50,000", False), ("70,000", True)]
)
def test_a_row_above_the_memory_limit_is_computed(N: str, computed: bool) -> None:
    whole = plan(Path("x"))
    arm = next(arm for arm in whole.arms() if arm.method == "deepmil" and arm.sizes["N"] == N)
    config = whole.config(arm, 0)
    measured: list[int | None] = []

    def measure(config: Config) -> Cost:
        measured.append(config.patches.sample)
        return linear_cost(config)

    cost, was_computed = measure_or_compute(config, measure, limit_gb=18)
    assert was_computed == computed
    assert cost.memory_gb == pytest.approx(linear_cost(config).memory_gb)
    assert cost.rest_ms == pytest.approx(linear_cost(config).rest_ms)
    number = int(N.replace(",", ""))
    assert measured == [number // 5, number // 10 if computed else number]


def test_times_of_selection_are_computed_too() -> None:
    cost = extrapolate((1, Cost(1.0, 10.0, 5.0)), (2, Cost(2.0, 30.0, 6.0)), 4)
    assert cost == Cost(4.0, 70.0, 8.0)


def test_computed_costs_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "measure_cost", lambda config, steps: linear_cost(config))
    monkeypatch.setattr(module, "write_stand_in", lambda folder: None)
    costs = plan(tmp_path, scores=False, limit_gb=18.0)
    files, failures = run_experiment(costs, console=quiet())
    assert not failures
    assert [file.name for file in files] == ["results.csv", "table.md", "figure.png", "memory.png"]
    lines = (tmp_path / "table.md").read_text().splitlines()
    marked = [line for line in lines if "(computed)" in line]
    assert len(marked) == 1
    assert "| DeepMIL | 70,000 | 70,000 | 21.50 (computed) | 31.5 |" in marked[0]
    numbers = (tmp_path / "results.csv").read_text().splitlines()
    assert sum(line.endswith(",computed") for line in numbers) == 3  # memory, rest and step
    assert (tmp_path / "memory.png").stat().st_size > 0

    run_experiment(plan(tmp_path, scores=False, limit_gb=40.0), console=quiet())
    assert "21.50 (computed)" not in (tmp_path / "table.md").read_text()  # it fits now


def test_a_computed_row_is_drawn_as_a_ring(tmp_path: Path) -> None:
    arm = Arm("DeepMIL", ("method=deepmil",), {"M": "9", "N": "9"}, {"memory_gb": "31.5"})
    pictures = []
    for computed in (False, True):
        results = [Result(arm, None, "memory_gb", 20.0, computed=computed)]
        for draw in (draw_scores, lambda *args: draw_memory(*args, largest=10)):
            path = tmp_path / "figure.png"
            draw(path, [arm], results)
            pictures.append(path.read_bytes())
    assert len(set(pictures)) == 4
    assert "20.00 (computed)" in markdown([arm], results)
