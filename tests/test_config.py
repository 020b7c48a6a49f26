from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ips.config import METHODS, Config, RoadSignsConfig, TableConfig, TaskConfig, TrafficSignsConfig
from ips.config_io import (
    describe,
    override,
    parse_config,
    parse_saved_config,
    read_yaml,
    write_yaml,
)
from ips.errors import ConfigError
from ips.recipes import read_recipe, recipe_names, recipe_path

TASKS: dict[str, Any] = {"tasks": {"grade": {"kind": "multiclass", "classes": 3}}}


def test_every_key_has_a_capitalised_help_text() -> None:
    def walk(section: type[Any]) -> None:
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name}"
            assert field.description[0].isupper()
            assert not field.description.endswith(".")
            if isinstance(field.annotation, type) and hasattr(field.annotation, "model_fields"):
                walk(field.annotation)

    walk(Config)
    for section in (RoadSignsConfig, TrafficSignsConfig, TableConfig, TaskConfig):
        walk(section)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("select.kep=3", "unknown key 'select.kep': did you mean 'keep'?"),
        ("selct.keep=3", "unknown key 'selct': did you mean 'select'?"),
        ("select.keep=0", "select.keep=0: input should be greater than or equal to 1"),
        ("tasks.grade.clases=3", "unknown key 'tasks.grade.clases': did you mean 'classes'?"),
        ("data.sid=3", "unknown key 'data.sid': did you mean 'side'?"),
        ("train.lr=fast", "train.lr='fast': input should be a valid number"),
        ("readout=colour", "readout: 'colour' is not one of the tasks: grade"),
        ("train.seed=4294967296", "train.seed=4294967296: input should be less than 4294967296"),
        ("data.seed=4294967296", "data.seed=4294967296: input should be less than 4294967296"),
        ("train.zzz=1", "unknown key 'train.zzz': the keys are epochs, batch"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_the_key(setting: str, sentence: str) -> None:
    values = override(TASKS | {"data": {"kind": "megapixel-mnist"}}, [setting])
    with pytest.raises(ConfigError) as caught:
        parse_config(values, source="mine.yaml")
    assert str(caught.value).startswith(f"mine.yaml: {sentence}")
    assert "\n" not in str(caught.value)


def test_missing_tasks_and_two_resolutions_are_mistakes() -> None:
    with pytest.raises(ConfigError, match="key 'tasks' is missing"):
        parse_config({}, source="mine.yaml")
    with pytest.raises(ConfigError, match="one of level, mpp, magnification and scale"):
        parse_config(TASKS | {"patches": {"level": 1, "mpp": 0.5}}, source="mine.yaml")
    with pytest.raises(ConfigError, match=r"key 'data.csv' is missing"):
        parse_config(TASKS | {"data": {"kind": "table"}}, source="mine.yaml")


@pytest.mark.parametrize(
    ("patches", "message"),
    [
        ({"scale": 0}, "scale=0.0: expected numbers above 0 and at most 1"),
        ({"scale": [1, 2]}, r"scale=\[1.0, 2.0\]: expected numbers above 0 and at most 1"),
        ({"scale": []}, r"scale=\[\]: expected numbers"),
        ({"scale": [0.5, 0.5]}, r"scale=\[0.5, 0.5\]: give each once"),
        ({"magnification": [20, 0]}, r"magnification=\[20.0, 0.0\]: expected numbers above 0"),
    ],
)
def test_resolutions_that_there_are_not(patches: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config(TASKS | {"patches": patches}, source="mine.yaml")


@pytest.mark.parametrize("several", [{"scale": [1, 0.5]}, {"magnification": [20, 5]}])
def test_whole_images_have_one_resolution(several: dict[str, Any]) -> None:
    (key,) = several
    values = TASKS | {"method": "cnn", "patches": several}
    with pytest.raises(ConfigError, match=rf"method=cnn with patches\.{key}"):
        parse_config(values, source="mine.yaml")


def test_set_takes_any_yaml_value_and_leaves_the_original_alone() -> None:
    values = {"select": {"keep": 3}}
    changed = override(values, ["select.keep=50", "encoder.mean=[0.5, 0.5, 0.5]", "readout=null"])
    assert changed["select"]["keep"] == 50
    assert changed["encoder"]["mean"] == [0.5, 0.5, 0.5]
    assert changed["readout"] is None
    assert values == {"select": {"keep": 3}}
    with pytest.raises(ConfigError, match="expected key=value"):
        override(values, ["select.keep"])
    with pytest.raises(ConfigError, match="keep is a value, not a section"):
        override(values, ["select.keep.more=1"])


def test_a_saved_config_is_the_same_config(tmp_path: Path) -> None:
    config = parse_config(TASKS, source="x")
    write_yaml(config.model_dump(mode="json"), tmp_path / "config.yaml")
    assert parse_config(read_yaml(tmp_path / "config.yaml"), source="y") == config


def test_a_described_config_is_the_same_config() -> None:
    config = parse_config(read_recipe("megapixel-mnist", scale="paper"), source="x")
    assert parse_config(yaml.safe_load(describe(config)), source="y") == config


@pytest.mark.parametrize("task", ["no", "a: b", "1", "# x", "é"])
def test_a_described_config_keeps_the_names_of_tasks(task: str) -> None:
    config = parse_config({"tasks": {task: {"classes": 3}}}, source="x")
    assert parse_config(yaml.safe_load(describe(config)), source="y") == config


@pytest.mark.parametrize(("epochs", "warmup"), [(150, 10), (100, 10), (30, 3), (1, 0.1)])
def test_the_usual_warm_up_fits_any_number_of_epochs(epochs: int, warmup: float) -> None:
    config = parse_config(TASKS | {"train": {"epochs": epochs}}, source="x")
    assert config.train.warmup_epochs == pytest.approx(warmup)


@pytest.mark.parametrize("scales", ["3", "[laptop]", "null", "{laptop: null}", "{1: {}}"])
def test_scales_that_are_none(tmp_path: Path, scales: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"scales: {scales}")
    with pytest.raises(ConfigError, match=r"mine\.yaml: .*scale"):
        read_recipe(str(path))


@pytest.mark.parametrize("content", ["{", "just words", "\x00\x01"])
def test_a_file_that_is_no_config(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"bad\.yaml"):
        read_yaml(path)


NINE = ["a0: &a0 [x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10))]


@pytest.mark.parametrize(
    "content",
    [
        "\n".join(NINE),  # nine to the ninth values
        "\n".join(
            ["a0: &a0 {k: 1}"]
            + [f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}" for i in range(1, 30)]
        ),
        "patches: &a [*a]",
        "patches: " + "[" * 5000 + "]" * 5000,
        "patches: {size: 1" + "0" * 5000 + "}",
        "method: 2020-13-45",
        "method: !!timestamp x",
        "method: !!int ''",
        "method: !!bool x",
        "method: ips  # " + "x" * 300_000,
    ],
)
def test_hostile_yaml_is_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"bad\.yaml: (not valid YAML|larger than)") as caught:
        read_yaml(path)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"method": ["ips"]}, r"method=\['ips'\]: input should be 'ips'"),
        ({"method": {"ips": 1}}, "method="),
        ({"method": "k" * 10**5}, "method='kkk"),
        ({"patches": {"size": 10**30}}, "size=1000000.* is too large: at most 1,000,000,000"),
        ({"patches": {"stride": 16**9000}}, r"stride=2\^36000 is too large"),
        ({"patches": {"size": 1e30}}, r"patches.size=1e\+30"),
        ({"aggregate": {"head": [8, 10**30]}}, "head.1=1000000.*less than or equal to 16384"),
        ({"aggregate": {"head": [-8]}}, "aggregate.head.0=-8: input should be greater"),
        ({"data": {"kind": "megapixel-mnist", "side": 10**6}}, "data.side=1000000: input should"),
        ({"train": {"lr": float("inf")}}, "train.lr=inf: input should be a finite number"),
        ({"encoder": {"std": [0.0]}}, "encoder.std.0=0.0: input should be greater than 0"),
        ({"encoder": {"weights": "a\0b"}}, r"weights='a\\x00b': a path has no zero bytes"),
    ],
)
def test_hostile_values_are_one_short_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"mine.yaml: .*{sentence}") as caught:
        parse_config(TASKS | values, source="mine.yaml")
    assert len(str(caught.value)) < 300


def test_aliases_are_for_repeated_values(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &a {size: 1}\nb: {<<: *a, stride: 2}\nc: [*a, *a]")
    values = read_yaml(tmp_path / "a.yaml")
    assert values["b"] == {"size": 1, "stride": 2}
    assert values["c"] == [{"size": 1}, {"size": 1}]


@pytest.mark.parametrize("text", ["!!int ''", "[" * 3000, "2020-13-45"])
def test_a_setting_that_is_no_yaml(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a YAML value"):
        override({}, [f"select.keep={text}"])


@pytest.mark.parametrize(
    "values", [[], 3, {"method": ["ips"]}, {"method": "deepmil", "aggregate": 3}]
)
def test_a_saved_config_of_the_wrong_kind(values: Any) -> None:
    with pytest.raises(ConfigError, match=r"run/config\.yaml: "):
        parse_saved_config(values, source="run/config.yaml")


def test_recipes_are_valid_at_every_scale() -> None:
    assert "megapixel-mnist" in recipe_names()
    for name in recipe_names():
        for scale in read_yaml(recipe_path(name))["scales"]:
            for method in METHODS:
                values = read_recipe(name, scale=scale, settings=[f"method={method}"])
                assert parse_config(values, source=name).method == method


def test_a_method_has_settings_of_its_own_and_the_command_line_wins() -> None:
    def deepmil(*settings: str) -> Config:
        values = read_recipe("megapixel-mnist", settings=["method=deepmil", *settings])
        return parse_config(values, source="x")

    assert deepmil().select.keep is None
    assert deepmil().select.chunk == 64  # what the method does not change stays
    assert deepmil("select.keep=7").select.keep == 7


def test_a_misspelt_recipe_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="did you mean megapixel-mnist"):
        read_recipe("megapixel-mnits")
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        read_recipe("nowhere.yaml")


@pytest.mark.parametrize("method", ["deepmil", "deepmil-plus", "ips-deepmil"])
def test_gated_attention_has_one_switch(method: str) -> None:
    assert parse_config({"method": method, **TASKS}, source="a").aggregate.name == "gated-attention"
    contradiction = {"method": method, "aggregate": {"name": "cross-attention"}, **TASKS}
    with pytest.raises(
        ConfigError, match=f"cross-attention with method={method}, which uses gated"
    ):
        parse_config(contradiction, source="a")
    # earlier versions stored the default name, which had no effect on these methods
    saved = parse_saved_config(contradiction, source="run")
    assert saved.aggregate.name == "gated-attention"
