from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ips.config import Config
from ips.config_io import parse_config, read_yaml
from ips.errors import ConfigError, IPSError, RunError
from ips.models import LOADS, IPSNet, Net
from ips.training import build_data, build_model, evaluate, load_model, resolve, train
from ips.training.batches import read_batch
from ips.training.data import set_epoch
from ips.training.module import Learner
from tests.training.tiny import tiny

CONSOLE = Console(quiet=True)


def test_a_run_folder_has_all_files(tmp_path: Path) -> None:
    config, run = tiny(), tmp_path / "run"
    train(config, run, console=CONSOLE)
    scores = evaluate(run, console=CONSOLE).scores
    stored = json.loads((run / "test.json").read_text())
    assert {task: result["score"] for task, result in stored.items()} == scores
    assert set(scores) == {"majority", "multi"}
    assert all(score is not None and 0 <= score <= 1 for score in scores.values())
    saved = parse_config(read_yaml(run / "config.yaml"), source="saved")
    assert saved == resolve(config, build_data(config))
    rows = metrics(run)
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert float(rows[-1]["lr"]) < float(rows[0]["lr"])
    assert (run / "checkpoints" / "last.ckpt").is_file()
    assert list((run / "tensorboard").glob("events.*"))
    with safe_open(run / "model.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["config"])["select"]["keep"] == 4


def test_the_same_seed_gives_the_same_weights_and_another_gives_others(tmp_path: Path) -> None:
    same = [weights(train(tiny(), tmp_path / name, console=CONSOLE).net) for name in "ab"]
    other = weights(train(tiny("train.seed=1"), tmp_path / "c", console=CONSOLE).net)
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], other)


class PowerCutError(Exception):
    """Stands for a power cut."""


def interrupt(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object], *, step: int = 4) -> None:
    """Call ``run``, and stop its training at a step."""
    ordinary = Learner.training_step

    def interrupted(self: Learner, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == step:
            raise PowerCutError
        return ordinary(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "training_step", interrupted)
        with pytest.raises(PowerCutError):
            run()


@pytest.mark.parametrize("step", [4, 6], ids=["in an epoch", "at the end of one"])
def test_interrupted_and_resumed_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    whole = weights(train(tiny(), tmp_path / "whole", console=CONSOLE).net)
    interrupt(monkeypatch, lambda: train(tiny(), tmp_path / "cut", console=CONSOLE), step=step)
    torch.manual_seed(12345)  # a new process starts with another random state
    resumed = weights(train(tiny(), tmp_path / "cut", resume=True, console=CONSOLE).net)
    assert torch.equal(whole, resumed)
    rows = metrics(tmp_path / "cut")
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]


def test_a_damaged_log_is_reported_before_a_run_is_resumed(tmp_path: Path) -> None:
    for text in (b"\xff\n", b"epoch,loss\nx,1\n", b"loss\n1\n", b"epoch,loss\n1,2,3\n"):
        (tmp_path / "metrics.csv").write_bytes(text)
        with pytest.raises(RunError, match=r"metrics\.csv: cannot be continued .*delete it"):
            train(tiny("train.epochs=1", "train.warmup=0"), tmp_path)


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = weights(train(tiny(), run, console=CONSOLE).net)
    written = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    again = weights(train(tiny(), run, resume=True, console=CONSOLE).net)
    assert torch.equal(first, again)
    assert written == {path: path.stat().st_mtime_ns for path in run.rglob("*")}


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
    with pytest.raises(RunError, match="already holds a run"):
        train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
    with pytest.raises(RunError, match=r"other settings \(select.keep=4\)"):
        train(
            tiny("train.epochs=1", "select.keep=5"), tmp_path / "run", resume=True, console=CONSOLE
        )


def test_resuming_with_a_removed_task_is_an_error(tmp_path: Path) -> None:
    train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
    values = tiny("train.epochs=1", "readout=null").model_dump()
    del values["tasks"]["multi"]
    fewer = parse_config(values, source="test")
    with pytest.raises(RunError, match=r"other settings \(.*tasks\.multi"):
        train(fewer, tmp_path / "run", resume=True, console=CONSOLE)


def test_a_run_that_failed_at_the_start_can_be_corrected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        train(tiny("train.slice=3"), tmp_path / "run", console=CONSOLE)
    model = tmp_path / "run" / "model.safetensors"
    assert not model.exists()
    train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
    assert model.is_file()


def test_a_resumed_run_may_load_images_differently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = weights(train(tiny("train.epochs=2"), tmp_path / "whole", console=CONSOLE).net)
    interrupt(monkeypatch, lambda: train(tiny("train.epochs=2"), tmp_path / "cut", console=CONSOLE))
    other = tiny("train.epochs=2", "select.load=lazy", "train.workers=1")
    resumed = weights(train(other, tmp_path / "cut", resume=True, console=CONSOLE).net)
    assert torch.allclose(whole, resumed, atol=1e-5)
    assert read_yaml(tmp_path / "cut" / "config.yaml")["select"]["load"] == "lazy"


def test_the_loading_strategies_give_the_same_loss() -> None:
    config = tiny()
    data = build_data(config)
    config = resolve(config, data)
    losses = []
    for load in LOADS:
        torch.manual_seed(0)
        net = build_model(config)
        sources, labels = read_batch(data.train, range(4), load=load)[:2]
        assert isinstance(net, IPSNet)
        chosen = net.select(sources, load=load, seed=3)
        torch.manual_seed(1)  # dropout
        output = net(chosen.patches, chosen.selection)
        losses.append(
            torch.nn.functional.cross_entropy(output.logits["majority"], labels["majority"])
        )
    assert torch.allclose(losses[0], losses[1])
    assert torch.allclose(losses[0], losses[2])


@pytest.mark.parametrize("load", LOADS)
def test_every_loading_strategy_trains_to_the_same_weights(tmp_path: Path, load: str) -> None:
    eager = weights(train(tiny("train.epochs=1"), tmp_path / "eager", console=CONSOLE).net)
    config = tiny("train.epochs=1", f"select.load={load}")
    other = weights(train(config, tmp_path / "other", console=CONSOLE).net)
    assert torch.allclose(eager, other, atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        ["select.mode=exact"],
        ["method=rps", "select.skip_blank=true"],
        ["select.keep=null"],
        ["aggregate.name=gated-attention"],
        ["encoder.freeze_norm=true", "train.slice=3"],
        ["readout=null"],
        ["train.workers=1"],
    ],
    ids=lambda settings: settings[0],
)
def test_every_setting_trains_and_evaluates_like_the_saved_model(
    tmp_path: Path, settings: list[str]
) -> None:
    config = tiny("train.epochs=1", *settings)
    torch.manual_seed(config.train.seed)
    start = weights(build_model(resolve(config, build_data(config))))
    model = train(config, tmp_path / "run", console=CONSOLE)
    assert not torch.equal(weights(model.net), start)
    assert weights(model.net).isfinite().all()
    in_memory = evaluate(tmp_path / "run", model=model, console=CONSOLE).scores
    from_disk = evaluate(tmp_path / "run", console=CONSOLE).scores
    assert in_memory.keys() == {"majority", "multi"}
    assert in_memory == from_disk


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("tasks.majorty.classes=10", "tasks.majorty: .* did you mean majority"),
        ("tasks.colour.classes=10", "tasks.colour: .* its labels are majority, max, top, multi"),
        ("tasks.majority.classes=5", "tasks.majority: .*classes=5.* kind=multiclass .*classes=10"),
        ("tasks.top.kind=multilabel", "tasks.top: kind=multilabel.* needs kind=multiclass"),
        ("tasks.multi={kind: binary}", "tasks.multi: kind=binary.* needs kind=multilabel"),
    ],
)
def test_a_task_that_the_data_lacks_is_an_error(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_data(tiny(setting))


def test_a_warm_up_as_long_as_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.warmup=3 with train\.epochs=3: use fewer"):
        train(tiny("train.warmup=3"), tmp_path / "run", console=CONSOLE)


def test_scores_have_no_rounding_of_float32() -> None:
    config = tiny()
    config = resolve(config, build_data(config))
    learner = Learner(build_model(config), config)
    learner.on_test_epoch_start()
    logits = torch.eye(10).repeat(40, 1)  # (400, 10)
    labels = logits.argmax(dim=1)
    labels[:40] = (labels[:40] + 1) % 10
    learner.tally.add(
        {"majority": logits, "multi": 9 * logits - 1}, {"majority": labels, "multi": logits}
    )
    assert learner.scores() == {"majority": 0.9, "multi": 1.0}


def test_slices_are_refused_where_they_would_not_be_exact(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.slice=3.*freeze_norm"):
        train(tiny("train.slice=3"), tmp_path / "run", console=CONSOLE)


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(IPSError, match=r"lower train\.lr"):
        train(tiny("train.lr=1e30", "train.warmup=0"), tmp_path / "run", console=CONSOLE)


def test_a_saved_model_predicts_the_same(tmp_path: Path) -> None:
    model = train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
    loaded = load_model(tmp_path / "run")
    assert loaded.config == model.config
    source, _ = build_data(model.config).test[0]
    before, after = model.net.predict(source), loaded.net.predict(source)
    assert torch.equal(before.indices, after.indices)
    for task in before.logits:
        assert torch.allclose(before.logits[task], after.logits[task], atol=1e-6)


def test_a_binary_readout_gives_probabilities_of_both_classes() -> None:
    config = tiny("tasks.odd={kind: binary}", "readout=odd")
    net = build_model(
        config.model_copy(update={"encoder": config.encoder.model_copy(update={"inputs": 1})})
    )
    p = net.predict(build_data(tiny()).test[0][0]).patch_probabilities
    assert p is not None
    assert p.shape == (4, 2)
    torch.testing.assert_close(p.sum(dim=1), torch.ones(4))


class TestBadRunFolders:
    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match="no such run folder"):
            load_model(tmp_path / "nowhere")

    def test_without_a_model(self, tmp_path: Path) -> None:
        with pytest.raises(RunError, match=r"no model\.safetensors in it"):
            load_model(tmp_path)

    def test_damaged(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_bytes(b"not a model")
        with pytest.raises(RunError, match="damaged"):
            load_model(tmp_path)

    def test_cut_short(self, tmp_path: Path) -> None:
        train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
        model = tmp_path / "run" / "model.safetensors"
        model.write_bytes(model.read_bytes()[:-100])
        with pytest.raises(RunError, match="damaged"):
            load_model(tmp_path / "run")

    @pytest.mark.parametrize("config", ["nope", "[1]", "3", "[" * 10**5, "{}", '{"method": [1]}'])
    def test_header_without_a_config(self, tmp_path: Path, config: str) -> None:
        weights = {"w": torch.zeros(1)}
        save_file(weights, tmp_path / "model.safetensors", metadata={"config": config})
        with pytest.raises((RunError, ConfigError), match=r"model\.safetensors: "):
            load_model(tmp_path)

    @pytest.mark.parametrize(
        "header", [b"[]", b'{"\xff\xfe": 1}', b"\0" * 50, b'{"__metadata__": {"config": 3}}']
    )
    def test_damaged_header(self, tmp_path: Path, header: bytes) -> None:
        for size in (len(header), 2**40, 2**63):
            (tmp_path / "model.safetensors").write_bytes(size.to_bytes(8, "little") + header)
            with pytest.raises(RunError, match=r"model\.safetensors: damaged"):
                load_model(tmp_path)

    def test_too_large_for_the_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(config: Config) -> Net:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

        monkeypatch.setattr("ips.training.model._build", fail)
        with pytest.raises(ConfigError, match="does not fit into memory"):
            build_model(tiny())
        with pytest.raises(ConfigError, match=r"encoder\.width"):
            tiny("encoder.width=100000000")


def metrics(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "metrics.csv").read_text().splitlines()))


def weights(net: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_only_the_weights_of_the_model_are_saved(tmp_path: Path) -> None:
    train(tiny("train.epochs=1"), tmp_path / "run", console=CONSOLE)
    names = set(load_file(tmp_path / "run" / "model.safetensors"))
    assert all(
        name.split(".")[0] in ("encoder", "aggregator", "heads", "readout") for name in names
    )


def test_mixed_precision_trains_and_stores_full_precision_weights(tmp_path: Path) -> None:
    full = train(tiny(), tmp_path / "full", console=CONSOLE).net
    mixed = train(tiny("train.precision=bf16-mixed"), tmp_path / "mixed", console=CONSOLE).net
    stored = load_file(tmp_path / "mixed" / "model.safetensors")
    assert all(t.dtype == torch.float32 for t in stored.values() if t.is_floating_point())
    assert not torch.equal(weights(full), weights(mixed))
    assert all(float(row["loss"]) < 10 for row in metrics(tmp_path / "mixed"))


def test_patches_sample_bounds_the_patches_of_every_image() -> None:
    whole, sampled = build_data(tiny()), build_data(tiny("patches.sample=5"))
    assert len(sampled.train) == len(whole.train)
    for data in (sampled.train, sampled.test):
        source, _ = data[0]
        assert len(source) == 5
        again, _ = data[0]
        assert source.coords.tolist() == again.coords.tolist()
    set_epoch(sampled.train, 1)
    set_epoch(whole.train, 1)
    assert torch.equal(sampled.train[3][1]["majority"], whole.train[3][1]["majority"])
