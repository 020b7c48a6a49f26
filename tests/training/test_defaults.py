"""Settings that a config leaves open."""

from __future__ import annotations

from pathlib import Path

import pytest

from ips.config import Config
from ips.config_io import parse_config, parse_saved_config
from ips.errors import ConfigError
from ips.recipes import read_recipe
from ips.training import build_data, resolve
from tests.training.own_images import features, photographs, slides
from tests.training.tiny import tiny

TASKS = {"grade": {"kind": "multiclass", "classes": 2}}


def resolved(table: Path, **sections: object) -> Config:
    values = {"data": {"kind": "table", "csv": str(table)}, "patches": {"size": 16}, "tasks": TASKS}
    config = parse_config(values | sections, source="test")
    return resolve(config, build_data(config))


def test_photographs_get_a_pretrained_encoder_that_is_fine_tuned(tmp_path: Path) -> None:
    config = resolved(photographs(tmp_path))
    encoder, train = config.encoder, config.train
    assert (encoder.name, str(encoder.weights), encoder.stages) == (
        *("efficientnet-lite0", "imagenet"),
        7,
    )
    assert (train.lr, train.result, train.balance) == (0.0005, "best", "none")
    augment = config.augment
    assert (augment.kind, augment.flips, augment.turns) == ("photographs", "horizontal", False)
    assert resolve(config, build_data(config)) == config
    assert parse_saved_config(config.model_dump(mode="json"), source="saved") == config


def test_the_users_choice_is_kept(tmp_path: Path) -> None:
    config = resolved(
        photographs(tmp_path),
        encoder={"name": "thin-resnet", "stages": 2},
        train={"lr": 0.01, "result": "last"},
        augment={"kind": "documents", "turns": True, "blur": 0},
    )
    assert (config.encoder.name, config.encoder.weights, config.encoder.stages) == (
        *("thin-resnet", None),
        2,
    )
    assert (config.train.lr, config.train.result) == (0.01, "last")
    augment = config.augment
    assert (augment.flips, augment.turns, augment.blur) == ("none", True, 0)
    fresh = resolved(tmp_path / "labels.csv", encoder={"weights": "none"})
    assert (fresh.encoder.name, fresh.train.lr) == ("resnet18", 0.001)


def test_slides_are_known_by_their_resolution(tmp_path: Path) -> None:
    augment = resolved(slides(tmp_path)).augment
    assert (augment.kind, augment.flips, augment.turns) == ("slides", "both", True)
    assert augment.stain
    scans = slides(tmp_path, micrometres=21)  # a document at 1,200 dpi
    assert resolved(scans).augment.kind == "photographs"


def test_features_get_a_projector_and_no_augmentation(tmp_path: Path) -> None:
    table = features(tmp_path)
    config = resolved(table)
    assert (config.encoder.name, config.augment.kind, config.train.lr) == (
        *("projector", "none"),
        0.001,
    )
    with pytest.raises(ConfigError, match=r"augment.kind=slides with stored features"):
        resolved(table, augment={"kind": "slides"})


@pytest.mark.parametrize(
    ("method", "encoder"), [("cnn", "efficientnet-lite0"), ("dps", "resnet18")]
)
def test_methods_of_the_whole_image_are_not_augmented(
    tmp_path: Path, method: str, encoder: str
) -> None:
    table = photographs(tmp_path)
    config = resolved(table, method=method)
    assert (config.encoder.name, config.augment.kind) == (encoder, "none")
    with pytest.raises(ConfigError, match=f"with method={method}, which cannot be augmented"):
        resolved(table, method=method, augment={"flips": "both"})


def test_lopsided_classes_get_weights(tmp_path: Path) -> None:
    table = photographs(tmp_path, count=30, every=5)
    assert resolved(table).train.balance == "lopsided"
    assert resolved(table, train={"balance": "sampling"}).train.balance == "sampling"
    assert resolved(table, train={"balance": "none"}).train.balance == "none"


def test_the_best_epoch_needs_validation_images(tmp_path: Path) -> None:
    table = photographs(tmp_path)
    data = {"kind": "table", "csv": str(table), "validation": 0}
    assert resolved(table, data=data).train.result == "last"
    for setting in ({"result": "best"}, {"patience": 3}):
        with pytest.raises(ConfigError, match=f"train.{next(iter(setting))}=.* data.validation"):
            resolved(table, data=data, train=setting)


def test_data_sets_of_the_paper_get_nothing_of_this() -> None:
    config = tiny("data.validation=3")
    config = resolve(config, build_data(config))
    train = config.train
    assert (train.lr, train.result, train.balance) == (0.001, "last", "none")
    assert config.augment.kind == "none"
    with pytest.raises(ConfigError, match="only the classes of a table can be balanced"):
        resolve(tiny("train.balance=weights"), build_data(tiny()))


@pytest.mark.parametrize("recipe", ["camelyon16", "tissue-slides"])
def test_recipes_of_tables_neither_balance_nor_choose_an_epoch(tmp_path: Path, recipe: str) -> None:
    table = features(tmp_path, task="tumor", count=20, every=5)
    values = read_recipe(recipe, settings=[f"data.csv={table}"])
    config = parse_config(values, source=recipe)
    config = resolve(config, build_data(config))
    assert (config.train.balance, config.train.result) == ("none", "last")
    assert config.augment.kind == "none"
