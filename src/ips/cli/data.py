"""`ips data`: generate or download a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from ips.cli.app import app, err, hints, print_message
from ips.cli.options import NewFolder, PlacementSeed
from ips.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import TaskID

data = typer.Typer(help="Generate or download a data set.", no_args_is_help=True)
app.add_typer(data, name="data")

TrainImages = Annotated[int, Option(min=0, help="Number of training images")]
TestImages = Annotated[int, Option(min=0, help="Number of test images")]


@data.command("mnist")
def mnist(
    folder: NewFolder,
    mirror: Annotated[
        list[str] | None,
        Option(
            metavar="URL",
            help="Address of a copy of the four .gz files, tried before the usual ones; repeatable",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        Option(
            "--from", metavar="DIR", help="Folder to copy the files from, instead of downloading"
        ),
    ] = None,
) -> None:
    """Download the 70,000 digits of MNIST, for megapixel MNIST as in the paper.

    Checksums are verified. The same command continues an interrupted download.
    """
    from ips.data.mnist import copy_mnist, download_mnist
    from ips.data.synthetic.digits import load_digits

    if source is not None:
        if mirror:
            raise ConfigError("--mirror and --from: give one of them")
        copy_mnist(source, folder)
    else:
        with _download_progress() as progress:
            download_mnist(folder, mirrors=mirror or (), progress=progress)
    digits = load_digits(folder)
    print_message(f"{folder}: {len(digits.train):,} + {len(digits.test):,} digits")
    print_message(f"use them with --set data.digits={folder}")


@data.command("megapixel-mnist")
def megapixel_mnist(
    folder: NewFolder,
    side: Annotated[int, Option(help="Side of an image in pixels")] = 1500,
    train: TrainImages = 5000,
    validation: Annotated[
        int,
        Option(min=0, help="Number of validation images; they use a tenth of the training digits"),
    ] = 0,
    test: TestImages = 1000,
    seed: PlacementSeed = 0,
    noise: Annotated[
        int | None, Option(help="Number of noise patterns on an image; side / 30 by default")
    ] = None,
    noise_style: Annotated[
        Literal["lines", "strokes"],
        Option(help="Thin lines, as published, or thick strokes, which are harder"),
    ] = "lines",
    digits: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Folder of `ips data mnist`, to use all of its digits; 5,000 embedded ones by "
            "default",
        ),
    ] = None,
    png: Annotated[int, Option(min=0, help="Number of test images to write as PNG files too")] = 0,
) -> None:
    """Generate megapixel MNIST: five digits among noise on large images.

    The default sizes and counts are those of the paper.
    """
    from ips.data.synthetic.megapixel_mnist_files import save_megapixel_mnist, write_png_files

    with _progress(train + validation + test, "images") as progress:
        save_megapixel_mnist(
            folder,
            side=side,
            train=train,
            validation=validation,
            test=test,
            seed=seed,
            noise=noise,
            noise_style=noise_style,
            digits=digits,
            progress=progress,
        )
    size = sum(file.stat().st_size for file in folder.glob("*.npz")) / 1e6
    counts = " + ".join(f"{count:,}" for count in (train, validation, test) if count)
    print_message(f"{folder}: {counts} images of {side:,} x {side:,} px, {size:.1f} MB")
    print_message(f"train on it with --set data.folder={folder}")
    if png:
        print_message(f"PNG files: {write_png_files(folder, count=png)}")


@data.command("road-signs")
def road_signs(
    folder: NewFolder,
    width: Annotated[int, Option(help="Width of an image in pixels")] = 400,
    height: Annotated[int, Option(help="Height of an image in pixels")] = 300,
    train: TrainImages = 1500,
    test: TestImages = 400,
    seed: PlacementSeed = 0,
) -> None:
    """Generate road scenes with one small speed limit sign or none.

    Labels and sign positions are written with the images. The same command continues an
    interrupted run.
    """
    from ips.data.synthetic.road_signs import write_road_signs

    with _progress(train + test, "images") as progress:
        write_road_signs(
            folder, width=width, height=height, train=train, test=test, seed=seed, progress=progress
        )
    print_message(f"{folder}: {train:,} + {test:,} images of {width:,} x {height:,} px")
    if train:
        table = folder / "road.csv"
        print_message(f"train on it as on your own images: data: {{kind: table, csv: {table}}}")


@data.command("traffic-signs")
def traffic_signs(
    folder: NewFolder,
    mirror: Annotated[
        list[str] | None,
        Option(
            metavar="URL",
            help="Address of a copy of Set1/ and Set2/, tried before the original; repeatable",
        ),
    ] = None,
) -> None:
    """Download the photographs of Swedish traffic signs.

    The same command continues an interrupted download.
    """
    from ips.data.traffic_signs import TrafficSigns, count_message, download_traffic_signs

    with _download_progress() as progress:
        download_traffic_signs(folder, mirrors=mirror or (), progress=progress)
    train, test = TrafficSigns(folder, split="train"), TrafficSigns(folder, split="test")
    print_message(f"{folder}: {len(train):,} + {len(test):,} images; you can delete the archives")
    if (message := count_message(folder)) is not None:
        print_message(message)
    print_message(f"train on it with --set data.folder={folder}")


@data.command("gtsdb")
def gtsdb(
    folder: NewFolder,
    mirror: Annotated[
        list[str] | None,
        Option(
            metavar="URL",
            help="Address of a folder with FullIJCNN2013.zip, tried before the original; "
            "repeatable",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        Option(
            "--from",
            metavar="PATH",
            help="FullIJCNN2013.zip, or a folder with gt.txt and the photographs as PPM, JPEG or "
            "PNG files, to copy from instead of downloading",
        ),
    ] = None,
) -> None:
    """Download 900 photographs of German roads, with the boxes of their traffic signs.

    The German Traffic Sign Detection Benchmark has about 1.6 GB. The same command continues an
    interrupted download.
    """
    from ips.data.gtsdb import ARCHIVE, copy_gtsdb, download_gtsdb
    from ips.data.table import read_cells

    if source is not None and mirror:
        raise ConfigError("--mirror and --from: give one of them")
    with _download_progress() as progress:
        if source is not None:
            copy_gtsdb(source, folder, progress=progress)
        else:
            download_gtsdb(folder, mirrors=mirror or (), progress=progress)
    table, boxes = folder / "gtsdb.csv", folder / "boxes.csv"
    splits = [cells["split"] for _, cells in read_cells(table)[1]]
    counts = " + ".join(str(splits.count(name)) for name in ("train", "validation", "test"))
    kept = f"; you can delete {ARCHIVE}" if (folder / ARCHIVE).exists() else ""
    print_message(f"{folder}: {counts} photographs, {len(read_cells(boxes)[1]):,} signs{kept}")
    print_message(
        f"train on it with ips train gtsdb --set data.csv={table} --set data.objects={boxes}"
    )


@data.command("tissue-slides")
def tissue_slides(
    folder: NewFolder,
    count: Annotated[
        int, Option(help="Number of slides; every other one has abnormal nuclei")
    ] = 60,
    side: Annotated[int, Option(help="Side of a slide in pixels, a multiple of 256")] = 4096,
    seed: PlacementSeed = 0,
    dose: Annotated[
        bool,
        Option(
            "--dose",
            help="Vary the number of clusters of abnormal nuclei between all slides, and write "
            "their area and a survival time that depends on it",
        ),
    ] = False,
) -> None:
    """Generate slides of stained tissue, half of them with a few abnormal nuclei.

    Outlines of the abnormal nuclei are written too. The same command continues an interrupted run.
    """
    from ips.data.synthetic.tissue_slides import MPP, write_tissue_slides

    with _progress(count, "slides") as progress:
        write_tissue_slides(folder, count=count, side=side, seed=seed, dose=dose, progress=progress)
    print_message(f"{folder}: {count:,} slides of {side:,} x {side:,} px at {MPP} µm per pixel")
    tissue = f"ips slides tissue {folder / 'slides'} --out {folder / 'tissue'}"
    print_message(f"find their tissue with: {tissue}")


@data.command("camelyon16")
def camelyon16(
    folder: Annotated[
        Path, Argument(metavar="FOLDER", help="CAMELYON16 folder, with training/ and testing/")
    ],
    features: Annotated[
        Path | None,
        Option(metavar="DIR", help="Output folder of `ips slides features`, to train on features"),
    ] = None,
    out: Annotated[Path, Option(metavar="CSV", help="CSV file to write")] = Path("camelyon16.csv"),
) -> None:
    """Write a CSV of the CAMELYON16 slides to train on.

    The CSV has the labels and the official split, with known errors corrected. Get the slides from
    https://camelyon17.grand-challenge.org/Data/.
    """
    from ips.data.camelyon16 import camelyon16_table, write_table

    table = camelyon16_table(folder, features=features)
    write_table(table.slides, out)
    train = sum(slide.split == "train" for slide in table.slides)
    test = len(table.slides) - train
    print_message(f"{out}: {train:,} training slides, {test:,} test slides")
    if table.missing_message is not None:
        print_message(table.missing_message)
    if features is not None:
        print_message(f"train on it with ips train camelyon16 --scale paper --set data.csv={out}")


@contextmanager
def _progress(total: int, note: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar; the block gets a callback that receives ``done`` and ``total``."""
    from ips.progress import progress_bar

    with progress_bar(err) as bar, hints():
        task = bar.add_task("writing", total=total, note=note)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def _download_progress() -> Iterator[Callable[[str, float, float | None], None]]:
    """A progress bar per file; the block gets a callback for `ips.data.download`."""
    from ips.progress import progress_bar

    with progress_bar(err) as bar, hints():
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: float, total: float | None) -> None:
            if what not in tasks:  # bytes of an earlier download do not count as speed
                tasks[what] = bar.add_task(what, completed=int(done), total=total, note="")
            bar.update(tasks[what], completed=done, total=total)

        yield progress
