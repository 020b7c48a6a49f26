"""`ips slides`: from whole slides to what is in them, one step a command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import app, err, print_message, print_table, report_errors

if TYPE_CHECKING:
    from ips.patches.tissue import Tissue

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
@report_errors
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
    from ips.progress import progress_bar
    from ips.slides.coords import Resolution
    from ips.slides.listing import list_slides
    from ips.slides.tissue import find_tissue_in

    files = list_slides(paths)
    with progress_bar(err) as bar:
        task = bar.add_task("slides", total=len(files), note="")
        names = [path.name for path in files]

        def progress(name: str, done: int, total: int) -> None:
            bar.update(task, completed=names.index(name), note=f"{name} {done / total:.0%}")

        try:
            found = find_tissue_in(
                files,
                out,
                resolution=Resolution(patch_size, level, mpp, magnification),
                draw=_draw,
                level=tissue_level,
                skip_errors=skip_errors,
                progress=progress,
            )
        except (ImageError, PatchError) as error:
            raise type(error)(f"{error} (or go on without it: --skip-errors)") from error
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where this stopped") from None
        bar.update(task, completed=len(files), note="")
    counts = [(s.slide.name, f"{s.kept:,} of {s.total:,}" * (not s.failed), s.note) for s in found]
    print_table(["slide", "patches with tissue", "note"], counts)
    failed = sum(slide.failed for slide in found)
    with_tissue = sum(slide.kept > 0 for slide in found)
    none = len(files) - with_tissue - failed
    counted = f"tissue in {with_tissue:,} of {len(files):,} slides, none in {none:,}"
    print_message(
        f"{counted}{f', {failed:,} not read' if failed else ''}: look at {out / 'thumbnails'}"
    )
    if failed:
        raise typer.Exit(1)


def _draw(tissue: Tissue, path: Path) -> None:
    """The slide in small, what is left out paler and what is kept outlined."""
    import numpy as np
    from PIL import Image as PILImage

    from ips.explain.marks import boxes

    view = tissue.patches.parts[0].thumbnail(_SIDE)
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
