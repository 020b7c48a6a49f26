"""`ips explain`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, err, say, show_table, told
from ips.cli.looking import look, make_folder, stem

if TYPE_CHECKING:
    from ips.explain import Explanation

_ENDS = ("-patches.csv", "-overlay.png", "-gallery.png", "-classes.png", ".geojson", "-map.tif")


@app.command()
@told
def explain(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="files to look at")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder to write into")],
    top: Annotated[int, typer.Option(min=1, max=200, help="patches in the gallery")] = 24,
    all_patches: Annotated[
        bool, typer.Option("--all-patches", help="every patch in the GeoJSON, not only those kept")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="whose attention the TIFF shows, instead of the mean")
    ] = None,
    no_crop: Annotated[
        bool,
        typer.Option(
            "--no-crop",
            help="count the pixels of GeoJSON and TIFF from the corner of the whole slide; by "
            "default from that of the part that was scanned, as QuPath does",
        ),
    ] = False,
) -> None:
    """Show where a trained model looks in images: the attention of every patch.

    Writes for each image what its attention is in colour, per task and mean (-overlay.png), the
    patches with most of it (-gallery.png), the classes of the patches kept, where the model has a
    head for them (-classes.png), every patch in numbers (-patches.csv), outlines for QuPath
    (.geojson) and a pyramid for viewers of slides (-map.tif). An image that cannot be read is
    named, the others are explained, and the exit code is 1.
    """
    from ips.errors import ConfigError, IPSError
    from ips.patches import release
    from ips.predictor import load
    from ips.progress import progress_bar

    predictor = load(run)
    if task is not None and task not in predictor.config.tasks:
        known = ", ".join(predictor.config.tasks)
        raise ConfigError(f"--task {task}: the model has no such task: take one of {known}")
    stems = _stems(out, images)
    rows = []
    try:
        for path, name in zip(images, stems, strict=True):
            try:
                seen = look(predictor, path)
                files = _files(
                    out / name, seen, top=top, task=task, all_patches=all_patches, crop=not no_crop
                )
                with progress_bar(err, transient=True) as bar:
                    work = bar.add_task(Path(path).name, total=len(_ENDS), note="files")
                    for _ in files:
                        bar.advance(work)
            except IPSError as error:
                say(f"ips: {error}")
                continue
            release(seen.source)
            answer = seen.title.removeprefix(f"{seen.name}: ")
            rows.append([path, answer, f"{seen.patches:,}", f"{out / name}*"])
            _say_what_is_left_out(seen, crop=not no_crop)
    finally:  # hours may have gone into what there is
        if rows:
            show_table(["image", "answer", "patches", "files"], rows)
    if len(rows) < len(images):
        raise typer.Exit(1)


def _stems(folder: Path, images: list[str]) -> list[str]:
    """How the files of each image begin, in a folder that is there: never over one that is read."""
    from ips.errors import ConfigError
    from ips.patches.features import split_address

    read = {split_address(image)[0].resolve() for image in images}
    stems: list[str] = []
    for image in images:
        name, count = stem(image), 1
        while name in stems:
            count += 1
            name = f"{stem(image)}-{count}"
        for target in (folder / f"{name}{end}" for end in _ENDS):
            if target.resolve() in read:
                raise ConfigError(
                    f"--out {folder}: what is written of {image} would replace {target}, which is "
                    "to be looked at: give another folder"
                )
        stems.append(name)
    make_folder(folder, "--out")
    return stems


def _files(
    start: Path,
    seen: Explanation,
    *,
    top: int,
    task: str | None,
    all_patches: bool,
    crop: bool,
) -> Iterator[Path]:
    """Write what there is to show of an image; gives each file when it is there."""
    from ips import explain as to

    source, attention, title, names = seen.source, seen.everywhere, seen.title, seen.names
    table, overlay, gallery, classes, geojson, tiff = (
        start.with_name(start.name + end) for end in _ENDS
    )
    to.write_patches(table, seen, source, attention, names=names)
    yield table
    to.draw_overlay(overlay, source, attention, title=title)
    yield overlay
    if len(source.shape) == 3:
        to.draw_top_patches(gallery, seen, source, attention, title=title, names=names, top=top)
        yield gallery
    if seen.patch_probabilities is not None:
        to.draw_attention(
            classes, predictions=[seen], sources=[source], titles=[title], names=names
        )
        yield classes
    if source.extent is not None:
        features = to.patch_features(
            seen, source, attention, names=names, all_patches=all_patches, crop=crop
        )
        to.write_geojson(geojson, features)
        yield geojson
        area, mpp = to.image_area(source, crop=crop), to.image_mpp(source)
        to.write_map_tiff(tiff, seen.map(task), area=area, mpp=mpp, task=task)
        yield tiff


def _say_what_is_left_out(seen: Explanation, *, crop: bool) -> None:
    features = len(seen.source.shape) != 3
    if features:
        say(f"{seen.name}: holds features, not pixels: there is no gallery")
    if seen.source.extent is None:
        say(f"{seen.name}: does not say how large its patches are: there is no GeoJSON and no TIFF")
    elif features and crop:
        say(
            f"{seen.name}: does not say which part of the slide was scanned: GeoJSON and TIFF "
            "count from the corner of the whole slide, where QuPath may count from that of the scan"
        )
