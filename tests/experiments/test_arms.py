"""The arms of the paper's tables and figures: their settings and numbers of patches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ips.config import METHODS, Config, label_columns
from ips.errors import ConfigError
from ips.experiments import EXPERIMENTS, Plan, get_experiment
from ips.experiments.arms import Scale
from ips.experiments.drawn_slides import DOSE
from ips.experiments.efficiency import without_downloads
from ips.patches import PatchSource
from ips.training import build_data, build_model, resolve
from tests.experiments.small import plan


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


def test_the_dose_is_learned_from_the_columns_that_are_written() -> None:
    whole = Plan(EXPERIMENTS["slide-dose"], "laptop", seeds=1, folder=Path("x"))
    for arm in whole.arms():
        assert tuple(label_columns(whole.config(arm, 0).tasks)) == DOSE.labels


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
