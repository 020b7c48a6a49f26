"""What a person writes: one YAML, every key with a default and a sentence of help."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ips.errors import ConfigError
from ips.files import write_text


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


Method = Literal["ips", "rps", "dps", "topmil", "deepmil", "deepmil-plus", "cnn", "ips-deepmil"]
METHODS: tuple[Method, ...] = get_args(Method)


def _key(default: Any, help: str, **limits: Any) -> Any:
    return Field(default, description=help, **limits)


class MegapixelMNISTConfig(_Section):
    """Digits among noise in a large black image (Sect. 4.3), made as they are needed."""

    kind: Literal["megapixel-mnist"] = _key("megapixel-mnist", "which data set")
    side: int = _key(1000, "side of an image in pixels", ge=112)
    train: int = _key(2000, "training images of an epoch", ge=1)
    test: int = _key(400, "test images", ge=1)
    seed: int = _key(0, "of what is where on the images", ge=0, lt=2**32)
    noise: int | None = _key(None, "noise patterns on an image; null for side / 30", ge=0)
    fresh: bool = _key(True, "place the digits of a training image afresh every epoch")
    digits: Path | None = _key(None, "folder of MNIST's IDX files; null for the embedded digits")
    folder: Path | None = _key(None, "read what `ips data megapixel-mnist` wrote there instead")


class RoadSignsConfig(_Section):
    """Drawn road scenes with a small speed limit of 50, 70 or 80 on them, or none."""

    kind: Literal["road-signs"] = _key("road-signs", "which data set")
    width: int = _key(800, "of an image in pixels", ge=320)
    height: int = _key(600, "of an image in pixels", ge=240)
    train: int = _key(2000, "training images of an epoch", ge=1)
    test: int = _key(400, "test images", ge=1)
    seed: int = _key(0, "of what is on the images", ge=0, lt=2**32)
    fresh: bool = _key(True, "draw other training images every epoch")


class TrafficSignsConfig(_Section):
    """Swedish traffic signs (Sect. 4.1), as `ips data traffic-signs FOLDER` fetches them."""

    kind: Literal["traffic-signs"] = _key("traffic-signs", "which data set")
    folder: Path = _key(..., "where `ips data traffic-signs` put them")
    seed: int = _key(0, "of the colours and places of training images", ge=0, lt=2**32)
    augment: bool = _key(True, "change colours a little and move training images")


class TableConfig(_Section):
    """Your own data: a CSV of paths and labels beside images, slides or feature files."""

    kind: Literal["table"] = _key("table", "which data set")
    csv: Path = _key(..., "the table: a path column, label columns, perhaps a `split` column")
    root: Path | None = _key(None, "folder that the paths are relative to; null for the CSV's own")
    path: str = _key("path", "name of the path column")
    test: float = _key(0.2, "share held out for testing where there is no `split`", gt=0, lt=1)
    seed: int = _key(0, "of the split", ge=0, lt=2**32)


DataConfig = Annotated[
    MegapixelMNISTConfig | RoadSignsConfig | TrafficSignsConfig | TableConfig,
    Field(discriminator="kind"),
]


class PatchesConfig(_Section):
    """How an image is cut into patches."""

    size: int = _key(256, "side of a patch in pixels, at the resolution read", ge=1)
    stride: int | None = _key(None, "pixels from one patch to the next; null for size", ge=1)
    edge: Literal["drop", "pad"] = _key("drop", "patches over the right and bottom edge")
    level: int | None = _key(None, "level of a pyramid to read; null for the finest", ge=0)
    mpp: float | None = _key(None, "micrometres per pixel to read at, instead of a level", gt=0)
    magnification: float | None = _key(None, "magnification to read at, say 20", gt=0)
    sample: int | None = _key(
        None, "look at so many patches of an image at most, drawn once and for all", ge=1
    )
    slide_mpp: float | None = _key(
        None, "of full resolution, for feature files that give places in micrometres", gt=0
    )

    @model_validator(mode="after")
    def _one_resolution(self) -> PatchesConfig:
        given = [k for k in ("level", "mpp", "magnification") if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"give one of level, mpp and magnification, not {' and '.join(given)}")
        return self


class EncoderConfig(_Section):
    """The network that turns a patch into an embedding."""

    name: str = _key(
        "resnet18",
        "resnet18, resnet50, thin-resnet (one block per stage, for laptops), timm:NAME, "
        "hub:OWNER/REPO, or projector for stored features",
    )
    stages: int = _key(4, "stages of a ResNet to keep", ge=1, le=4)
    width: int = _key(64, "channels of the first stage", ge=1)
    norm: bool = _key(False, "BatchNorm over the embedding: gets small networks off the ground")
    pool: Literal["mean", "max"] = _key("mean", "max shows small things in mostly empty patches")
    freeze_norm: bool = _key(False, "keep BatchNorm statistics as they were loaded")
    weights: Path | None = _key(
        None,
        "Pretrained weights: a file (.safetensors, .pth), imagenet, hub:OWNER/REPO, or none; null "
        "for the model's own with timm: and hub:, else none",
    )
    dim: int = _key(512, "embedding size of the projector", ge=1)
    mean: list[float] | None = _key(
        None, "Mean per channel of pixels between 0 and 1; null for that of the weights"
    )
    std: list[float] | None = _key(None, "Standard deviation per channel, likewise")
    inputs: int | None = _key(None, "channels or features of a patch; null: as the data has", ge=1)

    @model_validator(mode="after")
    def _known_name(self) -> EncoderConfig:
        ours = ("resnet18", "resnet50", "thin-resnet", "projector")
        if self.name not in ours and not self.name.startswith(("timm:", "hub:")):
            known = ", ".join([*ours, "timm:NAME", "hub:OWNER/REPO"])
            raise ValueError(f"there is no encoder {self.name!r}: choose one of {known}")
        return self


class SelectConfig(_Section):
    """How the patches to learn from are chosen."""

    keep: int | None = _key(100, "M, patches kept of an image; null for all", ge=1)
    chunk: int = _key(100, "I, patches looked at per step of the iterative selection", ge=1)
    mode: Literal["iterative", "exact"] = _key("iterative", "Eq. 1, or one step over all")
    load: Literal["eager", "sequential", "lazy"] = _key(
        "eager", "pixels in memory at a time: of the batch, of an image, of a micro-batch"
    )
    skip_blank: bool = _key(False, "pass over patches of one colour (but dps and cnn do not)")
    compile: bool = _key(False, "compile the selection pass; pays on a GPU")


class AggregateConfig(_Section):
    """How the patches kept become one answer per task."""

    name: Literal["cross-attention", "gated-attention"] = _key(
        "cross-attention", "the paper's transformer, or DeepMIL's attention"
    )
    heads: int = _key(8, "attention heads", ge=1)
    inner: int | None = _key(
        None, "hidden size of the transformer's MLP; null for 4 x embedding", ge=1
    )
    dropout: float = _key(0.1, "of the transformer", ge=0, lt=1)
    attention_dropout: float = _key(0.1, "of the attention", ge=0, lt=1)
    position: bool = _key(False, "tell the model where in the image a patch is")
    hidden: int = _key(128, "hidden units of gated attention", ge=1)
    head: list[int] = _key([], "sizes of the hidden layers of a task's head")


class DPSConfig(_Section):
    """Differentiable patch selection (Appendix D.5)."""

    scale: float = _key(1 / 3, "of the small image that is scored", gt=0, le=1)
    samples: int = _key(500, "of noise", ge=1)
    sigma: float = _key(0.05, "of the noise when training begins", ge=0)
    decay: bool = _key(True, "let sigma go down to 0 in a line")
    clip: float = _key(0.1, "most that the norm of the gradient may be", gt=0)


class CNNConfig(_Section):
    """A CNN on the whole image."""

    scale: float = _key(1.0, "of the image: 0.3 for a smaller copy", gt=0, le=1)


class TrainConfig(_Section):
    """How it learns."""

    epochs: int = _key(150, "times through the training images", ge=1)
    batch: int = _key(16, "images of a step", ge=1)
    lr: float = _key(0.001, "peak learning rate: 0.001 from scratch, 0.0003 to fine-tune", gt=0)
    weight_decay: float = _key(0.1, "of AdamW", ge=0)
    warmup: float | None = _key(
        None, "epochs of linear warm-up; null for a tenth of all, 10 at the most", ge=0
    )
    seed: int = _key(
        0, "of the weights, the order of images and patches, and dropout", ge=0, lt=2**32
    )
    slice: int | None = _key(None, "patches trained on at a time; bounds memory in M", ge=1)
    workers: int = _key(0, "processes that read pixels, with select.load=eager", ge=0)
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = _key("32-true", "of arithmetic")

    @property
    def warmup_epochs(self) -> float:
        """Epochs of warm-up; the paper has 10 of 150, and a short run fewer."""
        return min(10, self.epochs / 10) if self.warmup is None else self.warmup


class TaskConfig(_Section):
    """One thing to predict of an image."""

    kind: Literal["multiclass", "multilabel", "binary"] = _key("multiclass", "kind of label")
    classes: int = _key(2, "number of classes", ge=1)
    metric: Literal["accuracy", "exact-match", "auc"] | None = _key(
        None, "score; null for accuracy, exact-match or auc, as the kind has it"
    )
    names: list[str] | None = _key(None, "what to call the classes")

    @model_validator(mode="after")
    def _fits(self) -> TaskConfig:
        count = 2 if self.kind == "binary" else self.classes
        if self.names is not None and len(self.names) != count:
            raise ValueError(f"{len(self.names)} names for {count} classes")
        if self.kind == "binary" and self.classes > 2:
            raise ValueError(f"a binary task has 2 classes, not {self.classes}: make it multiclass")
        if self.kind != "multilabel" and self.metric == "exact-match":
            raise ValueError("exact-match is for multilabel tasks: take accuracy or auc")
        if self.kind == "multiclass" and self.classes < 2:
            raise ValueError("a multiclass task has at least 2 classes")
        return self


_USUAL: dict[Any, dict[str, dict[str, Any]]] = {
    "deepmil": {"select": {"keep": None}, "aggregate": {"hidden": 128}},
    "deepmil-plus": {
        "select": {"keep": None},
        "aggregate": {"hidden": 1024, "head": [2048, 512]},
    },
}


class Config(_Section):
    """A whole experiment."""

    method: Method = _key("ips", "what learns: Iterative Patch Selection, or a baseline")
    data: DataConfig = _key(MegapixelMNISTConfig(), "where images and labels come from")
    patches: PatchesConfig = _key(PatchesConfig(), "how an image is cut into patches")
    encoder: EncoderConfig = _key(EncoderConfig(), "what turns a patch into an embedding")
    select: SelectConfig = _key(SelectConfig(), "which patches are kept")
    aggregate: AggregateConfig = _key(AggregateConfig(), "how they become an answer")
    dps: DPSConfig = _key(DPSConfig(), "of method dps")
    cnn: CNNConfig = _key(CNNConfig(), "of method cnn")
    train: TrainConfig = _key(TrainConfig(), "how it learns")
    tasks: dict[str, TaskConfig] = _key(..., "what to predict, by name", min_length=1)
    readout: str | None = _key(None, "task from which to learn what class a patch shows")
    readout_head: list[int] = _key([128], "sizes of the hidden layers of that head")

    @model_validator(mode="before")
    @classmethod
    def _as_the_method_has_it(cls, values: Any) -> Any:
        """What a method is unless told otherwise: DeepMIL has no selection, DeepMIL+ is larger."""
        usual = _USUAL.get(values.get("method")) if isinstance(values, Mapping) else None
        if usual is None:
            return values
        result = dict(values)
        for section, keys in usual.items():
            given = result.get(section, {})
            if isinstance(given, Mapping):
                result[section] = {**keys, **given}
        return result

    @model_validator(mode="after")
    def _readout_is_a_task(self) -> Config:
        if self.readout is not None and self.readout not in self.tasks:
            raise ValueError(f"readout: {self.readout!r} is none of the tasks {list(self.tasks)}")
        return self


def parse_config(values: Mapping[str, Any], *, source: str) -> Config:
    """Check what was read from ``source``; a mistake is one sentence that names the key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_sentence(error)}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a text file") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected keys and values, as `ips recipes show` prints them")
    return values


def write_yaml(values: Mapping[str, Any], path: Path) -> None:
    """Write a mapping to a YAML file."""
    write_text(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))


def describe(config: Config) -> str:
    """A config as YAML with a comment at every key, to be saved and edited."""
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
    """``values`` with each ``section.key=value`` of the command line put in."""
    result = dict(values)
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"--set {setting}: expected key=value, for instance select.keep=50")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--set {setting}: {text!r} is not a value") from error
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
    # pydantic puts the kind of a data set into the path; a person wrote no such key
    path = [str(part) for part in first["loc"]]
    if path[:1] == ["data"]:
        del path[1:2]
    key = ".".join(path)
    match first["type"]:
        case "extra_forbidden":
            known = _keys_beside(first["loc"])
            near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            return f"unknown key {key!r}: {hint}"
        case "missing":
            return f"key {key!r} is missing: {_help_of(first['loc'])}"
        case "value_error":
            return f"{key + ': ' if key else ''}{first['ctx']['error']}"
        case _:
            message = first["msg"][0].lower() + first["msg"][1:]
            return f"{key}={first['input']!r}: {message}"


def _section_at(loc: tuple[int | str, ...]) -> type[BaseModel]:
    section: type[BaseModel] = Config
    kinds: dict[str, type[BaseModel]] = {
        "megapixel-mnist": MegapixelMNISTConfig,
        "road-signs": RoadSignsConfig,
        "traffic-signs": TrafficSignsConfig,
        "table": TableConfig,
    }
    for part in loc:
        if part in kinds:
            section = kinds[str(part)]
        elif part in section.model_fields:
            annotation = section.model_fields[str(part)].annotation
            if part == "tasks":
                section = TaskConfig
            elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
                section = annotation
    return section


def _keys_beside(loc: tuple[int | str, ...]) -> list[str]:
    return list(_section_at(loc[:-1]).model_fields)


def _help_of(loc: tuple[int | str, ...]) -> str:
    field = _section_at(loc[:-1]).model_fields.get(str(loc[-1]))
    return (field.description if field else None) or "see `ips recipes show`"
