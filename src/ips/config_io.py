"""Read, validate, override, print and write configs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from ips.config import GATED, METHOD_DEFAULTS, AnyDataConfig, Config, TaskConfig
from ips.errors import ConfigError
from ips.files import write_text


def parse_config(values: Mapping[str, Any], *, source: str) -> Config:
    """Validate the settings that were read from ``source``."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_sentence(error)}") from error


def parse_saved_config(values: Mapping[str, Any], *, source: str) -> Config:
    """Validate the config of a run folder, also of one that an earlier version wrote."""
    if values.get("method") in METHOD_DEFAULTS:  # up to 0.1 these methods ignored aggregate.name
        values = {**values, "aggregate": {**values.get("aggregate", {}), "name": GATED}}
    return parse_config(values, source=source)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys and values, as printed by `ips recipes show`")
    return values


def write_yaml(values: Mapping[str, Any], path: Path) -> None:
    """Write a mapping to a YAML file."""
    write_text(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))


def describe(config: Config) -> str:
    """A config as YAML with the help of every key as a comment, to be saved and edited."""
    return "".join(f"{line}\n" for line in _described(config, indent=""))


def _described(section: BaseModel, *, indent: str) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:  # {field.description}"
            yield from _described(value, indent=indent + "  ")
        elif name == "tasks":
            yield f"{indent}{name}:  # {field.description}"
            for task, inner in value.items():
                yield f"{indent}  {_inline(task)}:"
                yield from _described(inner, indent=indent + "    ")
        else:
            plain = section.model_dump(mode="json")[name]
            yield f"{indent}{name}: {_inline(plain)}  # {field.description}"


def _inline(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def override(values: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """A copy of ``values`` with each ``section.key=value`` of the command line applied."""
    result = dict(values)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected key=value, for instance select.keep=50")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {setting}: {text!r} is not a YAML value") from error
        *sections, key = name.split(".")
        place = result
        for section in sections:
            inner = place.get(section, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(f"--set {setting}: {section} is a value, not a section")
            place[section] = dict(inner)
            place = place[section]
        place[key] = value
    return result


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    section, field = _locate(first["loc"])
    # pydantic adds the kind of the data set to the path, which is no key
    path = [str(part) for part in first["loc"]]
    if path[:1] == ["data"]:
        del path[1:2]
    key = ".".join(path)
    match first["type"]:
        case "extra_forbidden":
            known = list(section.model_fields)
            near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
            return f"unknown key {key!r}: {hint}"
        case "missing":
            help = section.model_fields[field].description or "see `ips recipes show`"
            return f"key {key!r} is missing: {help[0].lower() + help[1:]}"
        case "value_error":
            return f"{key + ': ' if key else ''}{first['ctx']['error']}"
        case _:
            message = first["msg"][0].lower() + first["msg"][1:]
            return f"{key}={first['input']!r}: {message}"


def _locate(loc: tuple[int | str, ...]) -> tuple[type[BaseModel], str]:
    """The section and the key at a path of pydantic."""
    section: type[BaseModel] = Config
    kinds = {data.model_fields["kind"].default: data for data in get_args(AnyDataConfig)}
    for part in loc[:-1]:
        if part in kinds:
            section = kinds[part]
        elif part in section.model_fields:
            annotation = section.model_fields[str(part)].annotation
            if part == "tasks":
                section = TaskConfig
            elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
                section = annotation
    return section, str(loc[-1]) if loc else ""
