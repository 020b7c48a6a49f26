"""Read, validate, override, print and write configs."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from ips.config import GATED, METHOD_DEFAULTS, AnyDataConfig, Config, TaskConfig
from ips.errors import ConfigError, because, shown
from ips.files import write_text

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Limits of a YAML file: bytes, and values with every alias replaced by what it stands for.
_MAX_BYTES = 2**18
_MAX_VALUES = 20_000

# PyYAML does not convert these errors to its own: a date without such a month, !!int without one.
_MALFORMED = (
    *(yaml.YAMLError, ArithmeticError, AttributeError, LookupError),
    *(RecursionError, TypeError, ValueError),
)


def parse_config(values: Mapping[str, Any], *, source: str) -> Config:
    """Validate the settings that were read from ``source``."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_sentence(error.errors()[0])}") from error


def check_keys(values: Mapping[str, Any], *, source: str) -> None:
    """Raise if ``values`` has an unknown key; the values may be wrong or incomplete."""
    try:
        Config.model_validate(values)
    except ValidationError as error:
        for problem in error.errors():
            if problem["type"] == "extra_forbidden":
                raise ConfigError(f"{source}: {_sentence(problem)}") from error


def parse_saved_config(values: Any, *, source: str) -> Config:
    """Validate the config of a run folder, also of one that an earlier version wrote."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{source}: its config is {shown(values)}, expected keys and values")
    method, aggregate = values.get("method"), values.get("aggregate", {})
    # up to 0.1 these methods ignored aggregate.name
    if isinstance(method, str) and method in METHOD_DEFAULTS and isinstance(aggregate, Mapping):
        values = {**values, "aggregate": {**aggregate, "name": GATED}}
    select = values.get("select")
    if isinstance(select, Mapping) and "every" in select:  # between 0.2 and 0.3
        values = {**values, "select": {k: v for k, v in select.items() if k != "every"}}
    train = values.get("train")
    if isinstance(train, Mapping) and "start" not in train:  # up to 0.2 there was no other start
        values = {**values, "train": {**train, "start": "attention", "restarts": 0}}
    return parse_config(values, source=source)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file."""
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigError(f"{path}: larger than {_MAX_BYTES // 1024} kB, so it is no config")
        values = _parse_yaml(data.decode("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read {because(error, remedy='check it')}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file") from error
    except _MALFORMED as error:
        raise ConfigError(f"{path}: not valid YAML ({_reason(error)})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys and values, as printed by `ips recipes show`")
    return values


def _parse_yaml(text: str) -> Any:
    """Parse YAML; raise one of ``_MALFORMED``, also if a few aliases stand for a huge value."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _count(node: yaml.Node, counts: dict[int, int]) -> int:
    """Number of values below ``node``, where an alias counts as often as it is used."""
    if id(node) not in counts:
        counts[id(node)] = _MAX_VALUES + 1  # if the node contains itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        parts = [part for item in inner for part in (item if isinstance(item, tuple) else [item])]
        counts[id(node)] = 1 + sum(_count(part, counts) for part in parts)
    if counts[id(node)] > _MAX_VALUES:
        raise yaml.YAMLError(f"more than {_MAX_VALUES:,} values, counting every use of an alias")
    return counts[id(node)]


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "too many sections inside each other"
    if not isinstance(error, yaml.YAMLError):
        return f"a number, date or tagged value is malformed: {shown(str(error), quote=False)}"
    return shown(str(error), quote=False)


def write_yaml(values: Mapping[str, Any], path: Path) -> None:
    """Write a mapping to a YAML file."""
    write_text(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))


def describe(config: Config) -> str:
    """A config as YAML with the help of every key as a comment, to be saved and edited."""
    return "".join(f"{line}\n" for line in _described(config, indent=""))


def _described(section: BaseModel, *, indent: str) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(section, TaskConfig) and name not in section.own_settings:
            continue
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:  # {field.description}"
            yield from _described(value, indent=indent + "  ")
        elif name == "tasks":
            yield f"{indent}{name}:  # {field.description}"
            for task, inner in value.items():
                yield f"{indent}  {inline(task)}:"
                yield from _described(inner, indent=indent + "    ")
        else:
            plain = section.model_dump(mode="json")[name]
            yield f"{indent}{name}: {inline(plain)}  # {field.description}"


def inline(value: Any) -> str:
    """A value as YAML on one line."""
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
            value = _parse_yaml(text)
        except _MALFORMED as error:
            raise ConfigError(f"--set {setting}: {shown(text)} is not a YAML value") from error
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


def _sentence(first: ErrorDetails) -> str:
    section, field = _locate(first["loc"])
    # pydantic adds the kind of the data set and the type of a value to the path: they are no keys
    path = [str(part) for part in first["loc"] if part not in ("float", "list[float]")]
    if path[:1] == ["data"]:
        del path[1:2]
    key = ".".join(path)
    match first["type"]:
        case "extra_forbidden":
            known = list(section.model_fields)
            near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
            return f"unknown key {shown(key)}: {hint}"
        case "missing":
            help = section.model_fields[field].description or "see `ips recipes show`"
            return f"key {key!r} is missing: {_decapitalised(help)}"
        case "union_tag_invalid":
            tag, known = first["ctx"]["tag"], first["ctx"]["expected_tags"]
            return f"{key}.kind={shown(tag)}: expected one of {known}"
        case "value_error":
            return f"{key + ': ' if key else ''}{first['ctx']['error']}"
        case _:
            message = _decapitalised(first["msg"])
            return f"{key}={shown(first['input'])}: {message}"


def _decapitalised(text: str) -> str:
    return text if text[:2].isupper() else text[0].lower() + text[1:]  # CSV stays


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
