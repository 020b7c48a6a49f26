"""Recipes: built-in configs, at the scale of the paper and at a scale for a laptop."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from ips.config import Config
from ips.config_io import override, read_yaml
from ips.errors import ConfigError, shown

SCALES = ("laptop", "paper")


def recipe_names() -> list[str]:
    """Names of all recipes."""
    folder = resources.files("ips") / "recipes"
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".yaml"))


def recipe_path(name: str) -> Path:
    """Path of a recipe."""
    return Path(str(resources.files("ips") / "recipes" / f"{name}.yaml"))


def read_recipe(
    name_or_file: str, *, scale: str | None = None, settings: Sequence[str] = ()
) -> dict[str, Any]:
    """Read the settings of a recipe or of a YAML file.

    Args:
        name_or_file: name of a recipe, or path of a YAML file.
        scale: scale of a recipe; laptop by default, if the recipe has it.
        settings: such as ``select.keep=50``. They override the settings of the chosen method under
            ``methods`` in the recipe, which override the rest of the recipe.
    """
    values, methods = _read(name_or_file, scale=scale)
    method = override(values, settings).get("method", "ips")
    changes = methods.get(method, {}) if isinstance(method, str) else {}
    return override(_merged(values, changes), settings)


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``values``, updated recursively with ``changes``."""
    result = dict(values)
    for key, value in changes.items():
        old = result.get(key)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[key] = _merged(old, value) if nested else value  # type: ignore[arg-type]
    return result


def _read(name_or_file: str, *, scale: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of a recipe at a scale, and those that differ for each method."""
    path = Path(name_or_file)
    if path.suffix in (".yaml", ".yml"):
        values = read_yaml(path)
    else:
        path = recipe_path(name_or_file)
        if not path.is_file():
            names = recipe_names()
            near = difflib.get_close_matches(name_or_file, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the recipes are {', '.join(names)}"
            raise ConfigError(
                f"{name_or_file}: no such recipe: {hint} (a file of your own ends in .yaml)"
            )
        values = deepcopy(_built_in(path))
    if "scales" not in values:
        if scale is not None:
            raise ConfigError(f"{path}: has no scales: leave out --scale {scale}")
        return values, {}
    scales = values["scales"]
    if not isinstance(scales, dict) or not scales:
        raise ConfigError(f"{path}: scales={shown(scales)}: expected a section for each scale")
    chosen = scale or next((name for name in SCALES if name in scales), SCALES[0])
    if chosen not in scales:
        has = ", ".join(shown(name, quote=False) for name in list(scales)[:10])
        raise ConfigError(f"{path.name}: has no scale {chosen!r}, only {has}")
    if not isinstance(scales[chosen], dict):
        raise ConfigError(
            f"{path}: scales.{chosen}={shown(scales[chosen])}: expected the settings of that scale"
        )
    settings = dict(scales[chosen])
    methods = settings.pop("methods", {})
    if not isinstance(methods, dict) or not all(isinstance(m, dict) for m in methods.values()):
        raise ConfigError(
            f"{path}: scales.{chosen}.methods={shown(methods)}: expected settings of each method"
        )
    return settings, methods


@cache  # an experiment reads its recipe for every arm and seed
def _built_in(path: Path) -> dict[str, Any]:
    return read_yaml(path)


def fit_warmup(config: Config, settings: Sequence[str]) -> Config:
    """Use the default warm-up if ``settings`` has too few epochs for that of the recipe."""
    given = {setting.partition("=")[0] for setting in settings}
    fits = config.train.warmup_epochs < config.train.epochs
    if fits or "train.epochs" not in given or "train.warmup" in given:
        return config
    return config.model_copy(update={"train": config.train.model_copy(update={"warmup": None})})
