"""`ips data`: make or download a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, err, say, told

if TYPE_CHECKING:
    from rich.progress import TaskID

data = typer.Typer(help="Make or download a data set.", no_args_is_help=True)
app.add_typer(data, name="data")


@data.callback()
def _data() -> None:
    pass


@contextmanager
def drawing(total: int, what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over files that are left as they are when the command is given again."""
    from ips.progress import progress_bar

    with progress_bar(err) as bar:
        task = bar.add_task("drawing", total=total, note=what)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where this stopped") from None


@data.command("megapixel-mnist")
@told
def megapixel_mnist(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="folder to write to")],
    side: Annotated[int, typer.Option(help="side of an image in pixels")] = 1500,
    train: Annotated[int, typer.Option(help="training images")] = 5000,
    test: Annotated[int, typer.Option(help="test images")] = 1000,
    seed: Annotated[int, typer.Option(help="of what is where")] = 0,
    noise: Annotated[
        int | None, typer.Option(help="noise patterns on an image; side / 30 by default")
    ] = None,
    digits: Annotated[
        Path | None, typer.Option(help="folder of MNIST's IDX files instead of embedded digits")
    ] = None,
    png: Annotated[
        int, typer.Option(min=0, help="of the test images, how many to write as PNG too")
    ] = 0,
) -> None:
    """Five digits among noise on large images, stored sparsely; the paper's numbers by default."""
    from PIL import Image

    from ips.data import open_megapixel_mnist, save_megapixel_mnist
    from ips.progress import progress_bar

    with progress_bar(err) as bar:
        task = bar.add_task("writing", total=train + test, note="")

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        save_megapixel_mnist(
            folder,
            side=side,
            train=train,
            test=test,
            seed=seed,
            noise=noise,
            digits=digits,
            progress=progress,
        )
    size = sum(file.stat().st_size for file in folder.glob("*.npz")) / 1e6
    say(f"{folder}: {train:,} + {test:,} images of {side:,} x {side:,} px in {size:.1f} MB")
    say(f"train on it with --set data.folder={folder}")
    if png:
        scenes = open_megapixel_mnist(folder, split="test")
        (folder / "png").mkdir(exist_ok=True)
        for index in range(min(png, test)):
            Image.fromarray(scenes[index][0].dense()).save(folder / "png" / f"{index}.png")
        say(f"as pictures: {folder / 'png'}")


@data.command("road-signs")
@told
def road_signs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder to write to")],
    width: Annotated[int, typer.Option(help="of a picture in pixels")] = 400,
    height: Annotated[int, typer.Option(help="of a picture in pixels")] = 300,
    train: Annotated[int, typer.Option(min=0, help="training pictures")] = 1500,
    test: Annotated[
        int, typer.Option(min=0, help="test pictures; by default the recipe's own")
    ] = 400,
    seed: Annotated[int, typer.Option(help="of what is where")] = 0,
) -> None:
    """Draw road pictures with a small speed limit or none, as files with a CSV and the truth.

    Interrupted, it goes on where it stopped.
    """
    from ips.data.synthetic.road_files import write_road_signs

    sizes = {"width": width, "height": height, "train": train, "test": test}
    with drawing(train + test, "pictures") as progress:
        write_road_signs(folder, **sizes, seed=seed, progress=progress)
    say(f"{folder}: {train:,} + {test:,} pictures of {width:,} x {height:,} px")
    if train:
        say(f"train on them as on your own: data: {{kind: table, csv: {folder / 'road.csv'}}}")


@data.command("traffic-signs")
@told
def traffic_signs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="folder to download to")],
    mirror: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="folder with a copy of Set1/ and Set2/, tried before the original"
        ),
    ] = None,
) -> None:
    """Download photographs of Swedish roads; interrupted, it goes on where it stopped."""
    from ips.data.traffic_signs import TrafficSigns, download_traffic_signs
    from ips.progress import progress_bar

    with progress_bar(err) as bar:
        tasks: dict[str, TaskID] = {}

        def progress(what: str, done: float, total: float | None) -> None:
            if what not in tasks:  # what an earlier attempt got does not count as speed
                tasks[what] = bar.add_task(what, completed=int(done), total=total, note="")
            bar.update(tasks[what], completed=done, total=total)

        try:
            download_traffic_signs(folder, mirrors=mirror or (), progress=progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where this stopped") from None
    train, test = TrafficSigns(folder, split="train"), TrafficSigns(folder, split="test")
    say(f"{folder}: {len(train):,} + {len(test):,} images; its archives can be deleted")
    say(f"train on it with --set data.folder={folder}")
