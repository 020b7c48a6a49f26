"""The images: `data`, and their grid of `patches`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from ips.config.section import Section, key, seed_key

_MAX_SIDE = 100_000  # of images that are drawn


class MegapixelMNISTConfig(Section):
    """Digits among noise in a large black image (Sect. 4.3), generated on demand."""

    kind: Literal["megapixel-mnist"] = key("megapixel-mnist", "Data set")
    side: int = key(1000, "Image side in pixels", ge=112, le=_MAX_SIDE)
    train: int = key(2000, "Number of training images per epoch", ge=1)
    validation: int = key(
        0, "Number of validation images, from a tenth of the training digits; 0 for none", ge=0
    )
    test: int = key(400, "Number of test images", ge=1)
    seed: int = seed_key("Random seed of object placement and noise")
    noise: int | None = key(None, "Number of noise patterns per image; null for side / 30", ge=0)
    noise_style: Literal["lines", "strokes"] = key(
        "lines", "Noise patterns: thin lines, as published, or thick strokes, which are harder"
    )
    fresh: bool = key(True, "Place the digits of the training images anew in every epoch")
    digits: Path | None = key(
        None, "Folder of `ips data mnist`; null for the 5,000 embedded digits"
    )
    folder: Path | None = key(
        None,
        "Folder of `ips data megapixel-mnist`, or of the generator of the paper's authors, to read "
        "images from; null to generate them",
    )


class RoadSignsConfig(Section):
    """Synthetic road scenes with a small speed limit of 50, 70 or 80 on them, or none."""

    kind: Literal["road-signs"] = key("road-signs", "Data set")
    width: int = key(800, "Image width in pixels", ge=320, le=_MAX_SIDE)
    height: int = key(600, "Image height in pixels", ge=240, le=_MAX_SIDE)
    train: int = key(2000, "Number of training images per epoch", ge=1)
    validation: int = key(0, "Number of validation images; 0 for none", ge=0)
    test: int = key(400, "Number of test images", ge=1)
    seed: int = seed_key("Random seed of the scenes")
    fresh: bool = key(True, "Draw new training images in every epoch")


class TrafficSignsConfig(Section):
    """Swedish traffic signs (Sect. 4.1), downloaded by `ips data traffic-signs FOLDER`."""

    kind: Literal["traffic-signs"] = key("traffic-signs", "Data set")
    folder: Path = key(..., "Folder of `ips data traffic-signs`")
    validation: float = key(
        0.0, "Fraction of training images that is held out for validation; 0 for none", ge=0, lt=1
    )
    seed: int = seed_key("Random seed of the augmentation, and of the choice of validation images")
    augment: bool = key(True, "Augment training images by colour changes and translations")
    exclude: list[str] = key([], "File names of images to leave out; the paper left out one")


class TableConfig(Section):
    """Your own data: a CSV with the paths and labels of images, slides or feature files."""

    kind: Literal["table"] = key("table", "Data set")
    csv: Path = key(..., "CSV file with a path column, label columns, and perhaps a split column")
    root: Path | None = key(None, "Folder that paths are relative to; null for that of the CSV")
    path: str = key("path", "Name of the path column")
    group: str | None = key(
        None,
        "Column of patients or other groups, which no split divides; null for a column called "
        "patient, case_id or the like; none for no groups",
    )
    bags: Literal["image", "group", "average"] = key(
        "image",
        "What has one prediction: each image; a group, with the patches of all images of a patient "
        "in one bag; or average: a group, by the mean of the predictions for its images",
    )
    objects: Path | None = key(
        None,
        "CSV file with the boxes of objects, or folder of annotation files, to compare attention "
        "with; null for none",
    )
    test: float = key(0.2, "Fraction of test images, if there is no split column", gt=0, lt=1)
    validation: float = key(
        0.2,
        "Fraction of the other images for validation, if the split column names none and no class "
        "would be lost for training; 0 for none, and to train on those of the split column, too",
        ge=0,
        lt=1,
    )
    seed: int = seed_key("Random seed of the split")
    exclude: list[str] = key([], "Files to leave out, as in the path column")
    folds: int | None = key(
        None, "Number of folds of a cross-validation, see `ips train --folds`; null for none", ge=2
    )
    fold: int = key(1, "Fold, from 1, whose images are for validation, with folds", ge=1)
    repeat: int = key(1, "Number of the repetition, from 1; each has other folds", ge=1)

    @model_validator(mode="after")
    def _fold_exists(self) -> TableConfig:
        if self.fold > (self.folds or 1):
            raise ValueError(f"fold={self.fold}, but folds={self.folds}: give a fold that exists")
        return self


AnyDataConfig = MegapixelMNISTConfig | RoadSignsConfig | TrafficSignsConfig | TableConfig


DataConfig = Annotated[AnyDataConfig, Field(discriminator="kind")]


class PatchesConfig(Section):
    """The grid of patches of an image."""

    size: int = key(256, "Patch side in pixels, at the resolution that is read", ge=1)
    stride: int | None = key(
        None, "Distance between patches in pixels; null for size; method dps has its own", ge=1
    )
    edge: Literal["drop", "pad", "fit"] = key(
        "drop", "Patches across the image border: drop, pad with background, or fit inside"
    )
    level: int | None = key(None, "Pyramid level to read; null for the finest", ge=0)
    mpp: float | None = key(None, "Micrometres per pixel to read at, instead of a level", gt=0)
    magnification: float | list[float] | None = key(
        None,
        "Magnification to read at, instead of a level; of several, such as [20, 5], all patches "
        "are in one bag",
    )
    scale: float | list[float] | None = key(
        None,
        "Part of the full resolution to read at, such as 0.5, instead of a level; pixels are "
        "averaged; of several, such as [1, 0.5] for objects of very different size, all patches "
        "are in one bag",
    )
    channels: Literal["rgb", "grey", "as-is"] | None = key(
        None,
        "Channels of a patch: rgb or grey, to which other images are converted, or as-is; null for "
        "those of the training images, or rgb if these differ",
    )
    white: float | None = key(
        None,
        "Value that becomes 255 in images of more than 8 bits; null for the largest that the file "
        "says it uses, or else can store; never the largest of each image",
        gt=0,
    )
    tissue: str | None = key(
        None,
        "Keep only patches with tissue: otsu searches for it, as `ips slides tissue` does; or the "
        "folder that this command, CLAM or TRIDENT wrote, or of masks as PNG; null for all patches",
    )
    include: Path | None = key(
        None,
        "GeoJSON or ASAP XML file, or folder of such files named like the images: keep only "
        "patches of which at least half is inside an outline; null for all",
    )
    exclude: Path | None = key(
        None,
        "The same for outlines to leave out: patches of which at least half is inside; null for "
        "none",
    )
    sample: int | None = key(
        None,
        "Maximum number of patches per image and magnification or scale, sampled once; null for "
        "all",
        ge=1,
    )
    slide_mpp: float | None = key(
        None,
        "Micrometres per full-resolution pixel, for feature files with coordinates in micrometres",
        gt=0,
    )

    @model_validator(mode="after")
    def _one_resolution(self) -> PatchesConfig:
        ways = ("level", "mpp", "magnification", "scale")
        given = [way for way in ways if getattr(self, way) is not None]
        if len(given) > 1:
            raise ValueError(
                f"give one of level, mpp, magnification and scale, not {' and '.join(given)}"
            )
        return self

    @model_validator(mode="after")
    def _positive_and_different(self) -> PatchesConfig:
        for name, values in (("magnification", self.magnifications), ("scale", self.scales)):
            given, most = getattr(self, name), 1 if name == "scale" else math.inf
            if given is not None and not all(0 < value <= most for value in values or [0]):
                limit = " and at most 1" if name == "scale" else ""
                raise ValueError(f"{name}={given}: expected numbers above 0{limit}")
            if len(set(values)) < len(values):
                raise ValueError(f"{name}={given}: give each once")
        return self

    @property
    def magnifications(self) -> list[float]:
        """The magnifications to read at; empty if another resolution is given."""
        return _listed(self.magnification)

    @property
    def scales(self) -> list[float]:
        """The scales to read at; empty if another resolution is given."""
        return _listed(self.scale)


def _listed(given: float | list[float] | None) -> list[float]:
    return given if isinstance(given, list) else [] if given is None else [given]
