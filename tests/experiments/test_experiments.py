"""The paper's tables and figures as commands: what they run and write."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from ips.bench.timing import Clock
from ips.config import METHODS, Config
from ips.data.synthetic.scene import ScenePatches
from ips.errors import ConfigError, IPSError, RunError
from ips.experiments import EXPERIMENTS, Plan, efficiency, get_experiment, run_experiment
from ips.experiments import runner as module
from ips.experiments.arms import Arm, Experiment, Scale
from ips.experiments.efficiency import Cost, measure_here, without_downloads
from ips.experiments.figures import draw_grid, draw_lines, draw_scores
from ips.experiments.runner import read_results
from ips.experiments.tables import Result, markdown, per_run, write_csv
from ips.patches import MemoryPatches, PatchSource, PatchSubset
from ips.recipes import read_recipe
from ips.training import RunFolder, build_data, build_model, resolve, train

TINY = [
    "data.side=112",
    "data.train=4",
    "data.test=4",
    "patches.size=28",
    "train.epochs=1",
    "train.batch=2",
    "train.warmup=0",
    "encoder.width=16",
    "encoder.stages=1",
    "patches.stride=28",
]


def quiet() -> Console:
    return Console(file=io.StringIO())


SMALL = Experiment(
    "small",
    "two methods on tiny images",
    {"laptop": "megapixel-mnist"},
    lambda scale: [
        Arm(label, (f"method={label}", "select.keep=2"), {"M": "2", "N": "16"})
        for label in ("rps", "topmil")
    ],
    common={"laptop": tuple(TINY)},
)


def plan(folder: Path, experiment: Experiment = SMALL, **changes: object) -> Plan:
    values: dict[str, object] = {
        "experiment": experiment,
        "scale": "laptop",
        "seeds": 2,
        "folder": folder,
        "costs": False,
    }
    return Plan(**(values | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_arm_has_a_valid_config_and_its_own_folder(name: str) -> None:
    experiment = EXPERIMENTS[name]
    for scale in experiment.recipes:
        arms = experiment.arms(scale)
        assert len({arm.slug for arm in arms}) == len(arms)
        whole = Plan(experiment, scale, seeds=1, folder=Path("x"))
        configs = [whole.config(arm, 3) for arm in arms]
        assert all(config.train.seed == 3 for config in configs)
        assert [config.method for config in configs] == [arm.method for arm in arms]


def test_the_tables_compare_every_method() -> None:
    compared = {arm.method for e in EXPERIMENTS.values() for s in e.recipes for arm in e.arms(s)}
    assert compared == set(METHODS)


def test_arms_include_the_exceptions_of_the_paper() -> None:
    def configs(name: str, method: str, M: str) -> list[Config]:
        whole = Plan(EXPERIMENTS[name], "paper", seeds=1, folder=Path("x"))
        arms = [arm for arm in whole.arms() if arm.method == method and arm.sizes.get("M") == M]
        assert arms
        return [whole.config(arm, 0) for arm in arms]

    for method in ("ips", "rps", "dps"):
        for config in configs("traffic-signs", method, "2"):
            assert (config.aggregate.attention_dropout, config.aggregate.inner) == (0, 512)
    for config in configs("megapixel-mnist", "ips", "5"):
        assert config.aggregate.attention_dropout == 0
    for config in configs("megapixel-mnist", "dps", "5"):
        assert not config.dps.decay
    for config in configs("megapixel-mnist", "dps", "100"):
        assert config.dps.decay
        assert config.aggregate.attention_dropout == 0.1
    for config in configs("megapixel-mnist", "deepmil", "900"):
        assert config.aggregate.head == [128]
        assert config.aggregate.hidden == 128
    sizes = Plan(EXPERIMENTS["patch-size"], "paper", seeds=1, folder=Path("x"))
    assert {sizes.config(arm, 0).aggregate.inner for arm in sizes.arms()} == {512}
    for config in configs("traffic-signs", "deepmil-plus", "192"):
        assert config.aggregate.head == [2048, 512]
        assert config.aggregate.hidden == 1024


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_weights_start_as_the_authors_at_the_scale_of_the_paper(name: str) -> None:
    for scale in EXPERIMENTS[name].recipes:
        whole = Plan(EXPERIMENTS[name], scale, seeds=1, folder=Path("x"))
        starts = {whole.config(arm, 0).aggregate.start for arm in whole.arms()}
        assert starts == {"authors" if scale == "paper" else "xavier"}


def test_the_small_cnn_sees_a_third(tmp_path: Path) -> None:
    arms = Plan(EXPERIMENTS["megapixel-mnist"], "paper", seeds=1, folder=tmp_path).arms()
    small = [arm for arm in arms if arm.label == "CNN 0.3x"]
    assert [setting for setting in small[0].settings if "cnn.scale" in setting] == [
        f"cnn.scale={1 / 3}"
    ]


def test_an_interrupted_experiment_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Path] = []

    def interrupted(config: object, run: Path, **options: object) -> object:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(run)
        return train(config, run, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(plan(tmp_path), console=quiet())
    assert len((tmp_path / "table.md").read_text().splitlines()) == 2 + 2  # two lines so far
    monkeypatch.setattr(module, "train", train)
    before = {run: RunFolder(run).model.stat().st_mtime_ns for run in done}
    paths, failed = run_experiment(plan(tmp_path), console=quiet())
    assert not failed
    assert all(RunFolder(run).model.stat().st_mtime_ns == t for run, t in before.items())
    assert all(path.stat().st_size > 0 for path in paths)

    arms = plan(tmp_path).arms()
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(arms) * 2 * 4  # seeds, tasks
    assert {row["seed"] for row in rows} == {"0", "1"}
    table = (tmp_path / "table.md").read_text()
    assert table.count("±") == len(arms) * 4

    # A finished run with other settings is an error, not a result.
    _, failed = run_experiment(plan(tmp_path, settings=["train.lr=0.01"]), console=quiet())
    assert len(failed) == len(arms) * 2
    assert all("was started with other settings (train.lr=" in sentence for sentence in failed)
    assert read_results(plan(tmp_path, settings=["train.lr=0.01"])) == []
    assert len(read_results(plan(tmp_path))) == len(rows)


def test_a_failing_arm_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fails(config: Config, run: Path, **options: object) -> object:
        if config.method == "rps":
            raise IPSError("the loss became nan")
        return train(config, run, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "train", fails)
    _, failed = run_experiment(plan(tmp_path, seeds=1), console=quiet())
    assert failed == ["rps M=2 N=16 seed 0: the loss became nan"]
    assert "| topmil |" in (tmp_path / "table.md").read_text()
    monkeypatch.setattr(module, "train", train)
    run_experiment(plan(tmp_path, seeds=1, methods=["rps"]), console=quiet())
    table = (tmp_path / "table.md").read_text()
    assert "| rps |" in table
    assert "| topmil |" in table


def test_an_out_of_memory_error_is_reported_and_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(config: Config, **options: object) -> Cost:
        if config.method == "rps":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 98 GB")
        if config.method == "topmil":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Cost(1.0, None, 1.0)

    monkeypatch.setattr(module, "measure_cost", too_large)
    costs = plan(tmp_path, scores=False, costs=True)
    _, failed = run_experiment(costs, console=quiet())
    assert len(failed) == 2
    assert all("does not fit into memory" in sentence for sentence in failed)
    monkeypatch.setattr(module, "measure_cost", lambda *args, **options: [][0])
    with pytest.raises(IndexError):  # other errors are not hidden
        run_experiment(plan(tmp_path / "b", scores=False, costs=True), console=quiet())


def test_costs_are_measured_without_training() -> None:
    arm = plan(Path("x")).arms()[1]
    cost = measure_here(plan(Path("x")).config(arm, 0).model_dump(mode="json"), 3)
    assert cost.memory_gb > 0.05
    assert cost.rest_ms > 0
    assert cost.select_ms is not None
    assert cost.select_ms > 0


@pytest.mark.parametrize(
    ("method", "load"),
    [("ips", "eager"), ("ips", "sequential"), ("ips", "lazy"), ("cnn", "lazy"), ("dps", "eager")],
)
def test_images_are_in_memory_before_the_clock_starts(
    method: str, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []

    class Ticking(Clock):
        def __init__(self, device: torch.device) -> None:
            events.append("start")
            super().__init__(device)

        def lap(self) -> float:
            events.append("lap")
            return super().lap()

    def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            events.append("read")
            return function(*args, **options)

        return call

    monkeypatch.setattr(efficiency, "Clock", Ticking)
    monkeypatch.setattr(ScenePatches, "read", recorded(ScenePatches.read))
    if method != "ips":  # these assemble images, and read nothing afterwards
        monkeypatch.setattr(MemoryPatches, "read", recorded(MemoryPatches.read))
    settings = [*TINY, f"method={method}", f"select.load={load}", "select.keep=2"]
    values = read_recipe("megapixel-mnist", scale="laptop", settings=settings)
    cost = measure_here(values, 3)
    laps = 1 + int(method == "ips")  # selection, everything else
    assert (cost.select_ms is not None) == (laps == 2)
    before, *steps = " ".join(events).split("start")
    assert before.split() == ["read"] * 2 if load == "eager" else not before.strip()
    in_memory = steps[3:]  # after three steps that measure memory
    assert len(in_memory) == 3
    for step in in_memory:
        assert step.split()[:laps] == ["lap"] * laps


def test_equal_images_share_their_memory() -> None:
    one, same, other = (MemoryPatches(torch.full((3, 4), v), name=f"{v}") for v in (1, 1, 2))
    loaded = efficiency._load([PatchSubset(s, np.arange(2)) for s in (one, same, other, one)])
    assert [image.name for image in loaded] == ["1", "1", "2", "1"]
    places = [image.patches.data_ptr() for image in loaded]
    assert places[0] == places[1]
    assert len(set(places)) == 3  # an image is only compared with the one before


def test_a_whole_epoch_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def run(config: object, data: object, net: object, count: int, *, loaded: bool) -> object:
        steps.append(count)
        return [(0.5, second) for second in (9.0, 1.0, 2.0, 9.0)]

    monkeypatch.setattr(efficiency, "_run_steps", run)
    arm = plan(Path("x")).arms()[1]

    def measure(*settings: str) -> Cost:
        config = plan(Path("x"), settings=settings).config(arm, 0)
        return measure_here(config.model_dump(mode="json"), "epoch")

    cost = measure("data.train=10")  # in batches of 2
    assert steps == [5, 5]
    assert (cost.select_ms, cost.rest_ms) == (500, 1500)  # the first and last are left out
    with pytest.raises(ConfigError, match="an epoch of 4 images has fewer than 3 steps of 2"):
        measure("data.train=4")


def test_costs_of_photographs_are_measured_without_them() -> None:
    whole = Plan(EXPERIMENTS["traffic-signs"], "paper", seeds=1, folder=Path("x"))
    config = without_downloads(whole.config(whole.arms()[0], 0))
    assert config.encoder.weights == Path("none")
    source, labels = build_data(config).train[0]
    assert (len(source), source.shape, set(labels)) == (192, (3, 100, 100), {"sign"})


def test_costs_of_digits_are_measured_without_all_of_mnist(tmp_path: Path) -> None:
    whole = Plan(EXPERIMENTS["megapixel-mnist"], "paper", seeds=1, folder=Path("x"))
    config = whole.config(whole.arms()[0], 0)
    for folder, used in ((tmp_path / "gone", None), (tmp_path, tmp_path)):
        data = config.data.model_copy(update={"digits": folder})
        stand_in = without_downloads(config.model_copy(update={"data": data})).data
        assert stand_in == data.model_copy(update={"digits": used})


def test_costs_are_cached_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = []

    def once(config: object, *, steps: int) -> Cost:
        configs.append(config)
        return Cost(memory_gb=1.5, select_ms=None, rest_ms=20.0)

    monkeypatch.setattr(module, "measure_cost", once)
    changes: dict[str, Any] = {"scores": False, "costs": True, "methods": ["rps"]}
    for _ in range(2):
        run_experiment(plan(tmp_path, **changes), console=quiet())
    assert len(configs) == 1
    assert "1.50" in (tmp_path / "table.md").read_text()
    run_experiment(plan(tmp_path, **changes, settings=["train.batch=1"]), console=quiet())
    assert len(configs) == 2  # the settings differ


@pytest.mark.parametrize(
    "text", [b"{", b"\xff", b"[1]", b'{"majority": "high"}', b'{"majority": {}}', b"[" * 20_000]
)
def test_a_damaged_score_is_named(tmp_path: Path, text: bytes) -> None:
    small = plan(tmp_path)
    arm = SMALL.arms("laptop")[0]
    run = small.run(arm, 0)
    run.mkdir(parents=True)
    module._write_json(run / "asked.json", small.config(arm, 0).model_dump(mode="json"))
    assert read_results(small) == []
    (run / "test.json").write_bytes(text)
    with pytest.raises(RunError, match=r"test\.json: .*: delete it and run the same command again"):
        read_results(small)


@pytest.mark.parametrize("score", [0.5, {"metric": "accuracy", "score": 0.5}])
def test_scores_of_earlier_versions_are_read(tmp_path: Path, score: Any) -> None:
    small = plan(tmp_path)
    arm = SMALL.arms("laptop")[0]
    run = small.run(arm, 0)
    run.mkdir(parents=True)
    module._write_json(run / "asked.json", small.config(arm, 0).model_dump(mode="json"))
    module._write_json(run / "test.json", {"majority": score})
    assert read_results(small) == [Result(arm, 0, "majority", 0.5)]


def test_a_damaged_cost_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = Cost(memory_gb=1.5, select_ms=None, rest_ms=20.0)
    monkeypatch.setattr(module, "measure_cost", lambda config, *, steps: cost)
    measured = plan(tmp_path, scores=False, costs=True, methods=["rps"])
    run_experiment(measured, console=quiet())
    (path,) = (tmp_path / "costs").iterdir()
    whole, results = path.read_text(), read_results(measured)
    for text in (whole.replace("1.5", '"x"'), whole.replace("memory_gb", "memory"), "[]"):
        path.write_text(text)
        assert read_results(measured) == []
        run_experiment(measured, console=quiet())
        assert read_results(measured) == results


A = Arm("IPS", ("method=ips",), {"M": "5"}, {"majority": "98.9 ± 0.3"})
B = Arm("CNN", ("method=cnn",))


def test_the_table_has_mean_deviation_and_published_numbers() -> None:
    results = [Result(A, s, "majority", v) for s, v in enumerate((0.9, 0.8))]
    results += [Result(B, 0, "majority", 0.5), Result(A, None, "memory_gb", 1.234)]
    assert markdown([A, B], results).splitlines() == [
        "| method | M | majority [%] | paper | memory [GB] |",
        "| --- | --- | --- | --- | --- |",
        "| IPS | 5 | 85.0 ± 7.1 | 98.9 ± 0.3 | 1.23 |",
        "| CNN | – | 50.0 | – | – |",
    ]
    assert "| IPS | 5 | 80.0 | 90.0 | 98.9 ± 0.3 |" in per_run([A], results, "majority")


def test_the_csv_file_is_tidy(tmp_path: Path) -> None:
    write_csv(tmp_path / "r.csv", [Result(A, 1, "majority", 0.5), Result(B, None, "step_ms", 3.0)])
    assert (tmp_path / "r.csv").read_text().splitlines() == [
        "label,method,M,seed,name,value,source",
        "IPS,ips,5,1,majority,0.5,measured",
        "CNN,cnn,,,step_ms,3,measured",
    ]


def test_the_figures_are_drawn(tmp_path: Path) -> None:
    grid = [
        Arm("IPS", (), {"M": m, "I": i, "N": "9", "micro-batch": size})
        for m in "24"
        for i in ("2", "4", "all")
        for size in ("fixed", "B·I")
    ]
    sizes = [Arm(label, (), {"side": s}) for label in ("IPS", "CNN") for s in ("1,000", "2,000")]

    def results(arms: list[Arm]) -> list[Result]:
        names = ("memory_gb", "step_ms", "majority")
        return [Result(arm, 0, name, 0.5) for arm in arms for name in names]

    draw_grid(tmp_path / "grid.png", grid, results(grid))
    draw_lines(tmp_path / "lines.png", sizes, results(sizes), x="side", task="majority")
    draw_scores(tmp_path / "scores.png", [A, B], results([A, B]))
    assert {path.name for path in tmp_path.iterdir()} == {"grid.png", "lines.png", "scores.png"}


def test_mistakes_give_one_sentence() -> None:
    with pytest.raises(ConfigError, match="nowhere: no such experiment: there are"):
        get_experiment("nowhere")
    with pytest.raises(ConfigError, match="--methods dsp: small has rps, topmil"):
        plan(Path("x"), methods=["dsp"]).arms()
    with pytest.raises(
        ConfigError, match=r"--set select\.keep=3: the arms of small differ in select\.keep"
    ):
        plan(Path("x"), settings=["select.keep=3"]).arms()
    with pytest.raises(ConfigError, match="small: there is no scale paper, only laptop"):
        plan(Path("x"), scale="paper").arms()


@pytest.mark.parametrize("scale", ["laptop", "paper"])
def test_memory_is_measured_with_micro_batches_of_both_sizes(scale: Scale) -> None:
    whole = plan(Path("x"), EXPERIMENTS["memory-chunk"], scale=scale)
    configs = [(arm.sizes, whole.config(arm, 0)) for arm in whole.arms()]
    shown = {"fixed": "fixed", "chunk": "B·I"}
    assert all(shown[config.select.micro_batch] == s["micro-batch"] for s, config in configs)
    sizes_of = {
        name: [(s["M"], s["I"]) for s, _ in configs if s["micro-batch"] == name]
        for name in shown.values()
    }
    assert sizes_of["fixed"] == sizes_of["B·I"]
    for sizes, config in configs:
        if sizes["I"] == "all":  # all other patches in one step
            assert config.select.keep is not None
            assert config.select.keep + config.select.chunk == int(sizes["N"])


@pytest.mark.parametrize("name", ["megapixel-mnist", "memory-chunk", "traffic-signs"])
def test_the_shown_number_of_patches_is_right(name: str) -> None:
    whole = plan(Path("x"), EXPERIMENTS[name])
    for arm in whole.arms():
        if (shown := arm.sizes["N"]) != "–":
            config = whole.config(arm, 0)
            source = build_data(config).train[0][0]
            if arm.method == "dps":
                source = dps_patches(config)
            assert len(source) == int(shown.replace(",", ""))


def dps_patches(config: Config) -> PatchSource:
    config = without_downloads(config)
    data = build_data(config)
    return build_model(resolve(config, data)).own_patches(data.train[0][0])


@pytest.mark.parametrize(
    ("name", "rows", "columns", "first"),
    [("traffic-signs", 24, 32, -25), ("megapixel-mnist", 30, 30, 0)],
)
def test_dps_has_the_patches_of_the_paper(name: str, rows: int, columns: int, first: int) -> None:
    whole = Plan(EXPERIMENTS[name], "paper", seeds=1, folder=Path("x"))
    for arm in (arm for arm in whole.arms() if arm.method == "dps"):
        patches = dps_patches(whole.config(arm, 0))
        assert arm.sizes["N"] == str(rows * columns) == str(len(patches))
        y, x = np.divmod(np.arange(rows * columns), columns)
        assert np.array_equal(patches.coords, np.stack([x, y], axis=1) * 50 + first)
