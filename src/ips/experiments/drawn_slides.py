"""Synthetic slides with features of a pretrained encoder: the data of Table 2 at laptop scale.

The steps are those of a user's own slides (docs/slides.md): find the tissue, pretrain an encoder
with BYOL on the training slides or take one with ImageNet weights, store the features of every
patch. Every step skips what is finished, so an interrupted preparation continues.

    drawn/           the slides and their ground truth, see `ips.data.synthetic.tissue_slides`
    tissue/          coordinates of the patches with tissue, and thumbnails
    slides.csv       path, labels and split of each slide
    byol/            run folder of the pretraining, if there is one
    features/        one HDF5 file per slide
    features.csv     path, labels and split of each feature file
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from ips.data.split import Split
from ips.data.synthetic.tissue_slides import write_tissue_slides
from ips.data.table import Row, read_table, write_csv
from ips.experiments.arms import TABLE
from ips.nn.efficientnet import EFFICIENTNET
from ips.nn.weights import IMAGENET
from ips.pretraining.settings import Settings
from ips.pretraining.train import pretrain
from ips.progress import progress_bar
from ips.slides.coords import Resolution, slide_patches
from ips.slides.encoder import build_extractor
from ips.slides.features import FeatureExtractor, extract_features
from ips.slides.tissue import find_tissue


@dataclass(frozen=True)
class DrawnSlides:
    """Sizes of the data set and of its encoder.

    Attributes:
        train, validation, test: even numbers of slides; half of each have abnormal nuclei.
        side: side of a slide in pixels.
        clusters: smallest and largest number of clusters of abnormal nuclei on an abnormal slide.
        dose: whether all slides have clusters, and numbers to predict.
        patch_size: side of a patch in pixels.
        width, stages: size of the encoder, a thin ResNet.
        patches_per_slide, epochs, batch: length of the pretraining and size of its batches. Without
            epochs, the encoder is EfficientNet-lite0 with ImageNet weights.
    """

    train: int = 160
    validation: int = 40
    test: int = 80
    side: int = 4096
    clusters: tuple[int, int] = (3, 6)
    dose: bool = False
    patch_size: int = 64
    width: int = 32
    stages: int = 3
    patches_per_slide: int = 30
    epochs: int = 8
    batch: int = 128

    @property
    def labels(self) -> tuple[str, ...]:
        """Columns of labels in the tables."""
        return ("area", "months", "event") if self.dose else ("tumor",)


DOSE = DrawnSlides(
    train=80,
    validation=20,
    test=40,
    side=2048,
    clusters=(0, 5),
    dose=True,
    stages=5,
    epochs=0,
)
"""Slides whose number and area of clusters decide a number and a time."""


def prepare_drawn_slides(
    folder: Path, *, sizes: DrawnSlides | None = None, console: Console | None = None
) -> None:
    """Draw slides and store their features, with a table of the feature files."""
    sizes = sizes or DrawnSlides()
    slides = _draw(folder, sizes, console)
    paths = [row.path for row in slides]
    resolution = Resolution(sizes.patch_size)
    find_tissue(paths, out=folder / "tissue", resolution=resolution, console=console)
    # The pretraining reads the training slides only.
    _write_table(folder / "slides.csv", slides, sizes.labels)
    extractor = _pretrained(folder, sizes, console) if sizes.epochs else _imagenet(sizes)
    _extract(folder, paths, extractor, sizes, console)
    features = [
        Row(path=folder / "features" / f"{row.path.stem}.h5", labels=row.labels, split=row.split)
        for row in slides
    ]
    _write_table(folder / TABLE, features, sizes.labels)


def _imagenet(sizes: DrawnSlides) -> FeatureExtractor:
    return build_extractor(
        EFFICIENTNET, weights=IMAGENET, stages=sizes.stages, crop=sizes.patch_size
    )


def _pretrained(folder: Path, sizes: DrawnSlides, console: Console | None) -> FeatureExtractor:
    """An encoder that is pretrained on the training slides."""
    settings = Settings(
        data=(folder / "slides.csv",),
        coords=folder / "tissue",
        patch_size=sizes.patch_size,
        encoder="thin-resnet",
        stages=sizes.stages,
        width=sizes.width,
        hidden=512,
        projection=128,
        patches_per_slide=sizes.patches_per_slide,
        epochs=sizes.epochs,
        batch=sizes.batch,
        optimizer="adamw",
        tau=0.99,
    )
    encoder = pretrain(settings, run=folder / "byol", resume=True, console=console)
    return build_extractor(weights=str(encoder), crop=sizes.patch_size)


def _draw(folder: Path, sizes: DrawnSlides, console: Console | None) -> list[Row]:
    """Draw the slides that are missing; return all of them with their label and split."""
    counts: dict[Split, int] = {
        "train": sizes.train,
        "validation": sizes.validation,
        "test": sizes.test,
    }
    splits = [split for split, count in counts.items() for _ in range(count)]
    with progress_bar(console) as bar:
        line = bar.add_task("drawing", total=len(splits), note="")
        write_tissue_slides(
            folder / "drawn",
            count=len(splits),
            side=sizes.side,
            clusters=sizes.clusters,
            dose=sizes.dose,
            progress=lambda done, total: bar.update(line, completed=done),
        )
    drawn = read_table(folder / "drawn" / "slides.csv", tasks=sizes.labels)
    return [replace(row, split=split) for row, split in zip(drawn, splits, strict=True)]


def _extract(
    folder: Path,
    slides: list[Path],
    extractor: FeatureExtractor,
    sizes: DrawnSlides,
    console: Console | None,
) -> None:
    open_slide = partial(
        slide_patches, resolution=Resolution(sizes.patch_size), coords=folder / "tissue"
    )
    extract_features(
        {slide.stem: slide for slide in slides},
        folder / "features",
        extractor=extractor,
        open_slide=open_slide,
        console=console,
    )


def _write_table(path: Path, rows: list[Row], labels: Sequence[str]) -> None:
    """Write paths relative to the table, so that the folder can be moved."""
    lines = [
        (row.path.relative_to(path.parent), *(row.labels[name] for name in labels), row.split)
        for row in rows
    ]
    write_csv(path, ["path", *labels, "split"], lines)
