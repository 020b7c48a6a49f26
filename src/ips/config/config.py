"""All sections together, and the defaults of each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import model_validator

from ips.config.data import DataConfig, MegapixelMNISTConfig, PatchesConfig, TableConfig
from ips.config.network import (
    AggregateConfig,
    CNNConfig,
    DPSConfig,
    EncoderConfig,
    LayerSize,
    SelectConfig,
)
from ips.config.section import Section, key
from ips.config.tasks import TaskConfig
from ips.config.training import AugmentConfig, TrainConfig
from ips.errors import shown

Method = Literal["ips", "rps", "dps", "topmil", "deepmil", "deepmil-plus", "cnn", "ips-deepmil"]
METHODS: tuple[Method, ...] = get_args(Method)
GATED = "gated-attention"

# Defaults that differ from those of the sections, by method.
METHOD_DEFAULTS: dict[Any, dict[str, dict[str, Any]]] = {
    "deepmil": {"select": {"keep": None}, "aggregate": {"name": GATED, "hidden": 128}},
    "deepmil-plus": {
        "select": {"keep": None},
        "aggregate": {"name": GATED, "hidden": 1024, "head": [2048, 512]},
    },
    "ips-deepmil": {"aggregate": {"name": GATED}},
}


class Config(Section):
    """All settings of a training."""

    method: Method = key("ips", "Method: ips, or the baseline rps, dps, topmil, deepmil, cnn, …")
    data: DataConfig = key(MegapixelMNISTConfig(), "Images with their labels")
    patches: PatchesConfig = key(PatchesConfig(), "Grid of patches of an image")
    encoder: EncoderConfig = key(EncoderConfig(), "Network from a patch to its embedding")
    select: SelectConfig = key(SelectConfig(), "Selection of patches")
    aggregate: AggregateConfig = key(AggregateConfig(), "Aggregation of patches to predictions")
    dps: DPSConfig = key(DPSConfig(), "Settings of method dps")
    cnn: CNNConfig = key(CNNConfig(), "Settings of method cnn")
    augment: AugmentConfig = key(AugmentConfig(), "Random changes of the training images")
    train: TrainConfig = key(TrainConfig(), "Optimisation")
    tasks: dict[str, TaskConfig] = key(..., "Labels to predict, by name", min_length=1)
    readout: str | None = key(None, "Task that trains the patch-level head; null for none")
    readout_head: list[LayerSize] = key([128], "Sizes of the hidden layers of the patch-level head")

    @model_validator(mode="before")
    @classmethod
    def _method_defaults(cls, values: Any) -> Any:
        method = values.get("method") if isinstance(values, Mapping) else None
        defaults = METHOD_DEFAULTS.get(method, {}) if isinstance(method, str) else {}
        result = values
        for section, keys in defaults.items():
            given = result.get(section, {})
            if isinstance(given, Mapping):
                result = {**result, section: {**keys, **given}}
        return result

    @model_validator(mode="after")
    def _aggregator_of_the_method(self) -> Config:
        if self.method in METHOD_DEFAULTS and self.aggregate.name != GATED:
            raise ValueError(
                f"aggregate.name={self.aggregate.name} with method={self.method}, which uses "
                f"{GATED}: leave out aggregate.name, or use method=ips"
            )
        return self

    @property
    def bags(self) -> Literal["image", "group", "average"]:
        """What has one prediction; see ``data.bags``."""
        return self.data.bags if isinstance(self.data, TableConfig) else "image"

    @model_validator(mode="after")
    def _whole_images_are_one_image(self) -> Config:
        if self.method in ("cnn", "dps"):
            several = "patches.magnification" if len(self.patches.magnifications) > 1 else None
            if len(self.patches.scales) > 1:
                several = "patches.scale"
            if self.bags == "group":
                several = "data.bags=group"
            if several is not None:
                raise ValueError(
                    f"method={self.method} with {several}: this method needs one whole image at "
                    "one resolution: use method=ips"
                )
        return self

    @model_validator(mode="after")
    def _readout_is_a_task(self) -> Config:
        if self.readout is not None and self.readout not in self.tasks:
            known = ", ".join(self.tasks)
            raise ValueError(f"readout: {shown(self.readout)} is not one of the tasks: {known}")
        if self.readout is not None and not self.tasks[self.readout].has_classes:
            raise ValueError(
                f"readout: {shown(self.readout)} has no classes, and the patch-level head "
                "classifies patches: name another task, or write null"
            )
        return self
