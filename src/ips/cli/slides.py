"""`ips slides`: from whole slides to what is in them, one step a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, err, say, show_table, told

if TYPE_CHECKING:
    from ips.patches.image import ImagePatches
    from ips.patches.tissue import Progress, Tissue

slides = typer.Typer(
    help="Prepare whole slides: find their tissue, store their features.", no_args_is_help=True
)
app.add_typer(slides, name="slides")

_SIDE = 1024  # of a thumbnail, in pixels
_LINE = 2  # width of an outline
_GREEN = (0, 140, 70)


@slides.callback()
def _slides() -> None:
    pass


@slides.command()
@told
def tissue(
    paths: Annotated[list[Path], typer.Argument(metavar="SLIDES...", help="files or folders")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder to write to")],
    patch_size: Annotated[int, typer.Option(help="side of a patch in pixels as it is read")] = 256,
    mpp: Annotated[
        float | None, typer.Option(help="read at this many micrometres per pixel")
    ] = None,
    magnification: Annotated[float | None, typer.Option(help="read at this, such as 20")] = None,
    level: Annotated[
        int | None, typer.Option(help="read at this level of the file; 0 by default")
    ] = None,
    tissue_level: Annotated[
        int | None,
        typer.Option(
            help="level to look for tissue at; by default the coarsest with pixels of at most "
            "16 px and patches of at least 16 of them"
        ),
    ] = None,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="go on without slides that cannot be read")
    ] = False,
) -> None:
    """Find the patches of slides that hold tissue, and draw them for you to check.

    DIR/patches gets the places of the patches of each slide, DIR/thumbnails a picture. Slides that
    are finished are not read again. One without tissue is reported and is no error.
    """
    from ips.errors import ImageError, PatchError
    from ips.images import downsample_for, open_image
    from ips.patches.image import ImagePatches
    from ips.progress import progress_bar

    files = slide_files(paths)
    rows: list[tuple[str, str, str]] = []
    empty = failed = 0
    with progress_bar(err) as bar:
        task = bar.add_task("slides", total=len(files), note="")
        for number, path in enumerate(files):

            def progress(done: int, total: int, path: Path = path) -> None:
                bar.update(task, note=f"{path.name} {done / total:.0%}")

            try:
                with open_image(path) as image:
                    scale = downsample_for(image, level=level, mpp=mpp, magnification=magnification)
                    patches = ImagePatches(image, patch_size=patch_size, downsample=scale)
                    found = _look(patches, path.stem, out, level=tissue_level, progress=progress)
            except (ImageError, PatchError) as error:
                if not skip_errors:
                    raise type(error)(f"{error} (or go on without it: --skip-errors)") from error
                failed += 1
                rows.append((path.name, "", str(error)))
            except KeyboardInterrupt:
                raise KeyboardInterrupt("the same command goes on where this stopped") from None
            else:
                empty += not len(found.kept)
                share = f"{len(found.kept):,} of {len(found.patches):,}"
                rows.append((path.name, share, found.reason or ""))
            bar.update(task, completed=number + 1, note="")
    show_table(["slide", "patches with tissue", "note"], rows)
    counts = (
        f"tissue in {len(files) - empty - failed:,} of {len(files):,} slides, none in {empty:,}"
    )
    say(f"{counts}{f', {failed:,} not read' if failed else ''}: look at {out / 'thumbnails'}")
    if failed:
        raise typer.Exit(1)


def slide_files(paths: list[Path]) -> list[Path]:
    """The slides among files and folders, in order, each once; their names must differ."""
    from ips.errors import ConfigError
    from ips.images import is_image

    found: dict[Path, Path] = {}
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if is_image(p))
            if not inside:
                raise ConfigError(
                    f"{path}: there is no slide in this folder, and folders in it are not looked "
                    "into: give the one that holds the files"
                )
        elif not path.exists():
            raise ConfigError(f"{path} does not exist: check the path")
        found.update((file.resolve(), file) for file in inside if file.resolve() not in found)
    names: dict[str, Path] = {}
    for file in found.values():
        if file.stem in names:
            raise ConfigError(
                f"{names[file.stem]} and {file} have the same name: write them to two folders"
            )
        names[file.stem] = file
    return list(found.values())


def tissue_file(out: Path, name: str) -> Path:
    """Where the places of the patches of a slide are; TRIDENT looks for them there too."""
    return out / "patches" / f"{name}_patches.h5"


def _look(
    patches: ImagePatches, name: str, out: Path, *, level: int | None, progress: Progress
) -> Tissue:
    """The tissue of one slide, from its file if it was looked for before."""
    from ips.errors import ConfigError
    from ips.patches.tissue import load_tissue, save_tissue, tissue_patches

    target = tissue_file(out, name)
    if target.exists():
        stored = load_tissue(target, patches.image)
        before = stored.patches
        same = (before.grid, before.downsample) == (patches.grid, patches.downsample)
        if not same or level not in (None, stored.level):
            raise ConfigError(
                f"{target} was made for patches of {before.patch_size} px, {before.downsample:g} "
                f"px of the slide each, with tissue at level {stored.level}: give another --out, "
                "or the same settings"
            )
        return stored
    found = tissue_patches(patches, level=level, progress=progress)
    _draw(found, out / "thumbnails" / f"{name}.png")
    save_tissue(target, found)  # last: a slide with this file is finished
    return found


def _draw(tissue: Tissue, path: Path) -> None:
    """The slide in small, what is left out paler and what is kept outlined."""
    import numpy as np
    from PIL import Image as PILImage

    from ips.explain.overview import boxes, overview

    view = overview(tissue.patches, side=_SIDE)
    height, width = view.pixels.shape[:2]
    kept = np.zeros((height, width), dtype=bool)
    marks = boxes(view, tissue.source.coords, extent=tissue.patches.extent)  # (n, 4)
    corners = np.rint(np.concatenate([marks[:, :2], marks[:, :2] + marks[:, 2:]], axis=1))
    for x0, y0, x1, y1 in corners.astype(int).tolist():
        kept[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = True
    wide = np.pad(kept, _LINE)
    around = [np.roll(wide, step, axis) for step in (-_LINE, _LINE) for axis in (0, 1)]
    line = kept & ~np.logical_and.reduce(around)[_LINE:-_LINE, _LINE:-_LINE]
    picture = np.where(kept[..., None], view.pixels, 128 + view.pixels // 2).astype(np.uint8)
    picture[line] = _GREEN
    path.parent.mkdir(parents=True, exist_ok=True)
    PILImage.fromarray(picture).save(path)
