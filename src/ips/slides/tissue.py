"""Find the tissue of many slides, with one coordinate file and one thumbnail for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ips.errors import ConfigError, ImageError, PatchError
from ips.patches import ImagePatches
from ips.patches.tissue import Progress, Tissue, load_tissue, save_tissue, tissue_patches
from ips.slides.coords import Resolution, slide_patches
from ips.slides.listing import SlideProgress


@dataclass(frozen=True)
class SlideTissue:
    """How much of a slide is tissue.

    Args:
        slide: file of the slide.
        kept: number of patches with tissue.
        total: number of patches.
        note: why no patch has tissue, or why the slide failed; empty otherwise.
        failed: whether the slide could not be read.
    """

    slide: Path
    kept: int
    total: int
    note: str = ""
    failed: bool = False


def find_tissue_in(
    slides: Iterable[Path],
    folder: str | Path,
    *,
    resolution: Resolution,
    draw: Callable[[Tissue, Path], None],
    level: int | None = None,
    skip_errors: bool = False,
    progress: SlideProgress | None = None,
) -> list[SlideTissue]:
    """Find the patches with tissue on each slide, and store their coordinates and a thumbnail.

    Finished slides are not read again.

    Args:
        slides: files with different names.
        folder: output folder; coordinates go to ``patches``, thumbnails to ``thumbnails``.
        resolution: how to cut patches; 256 px at level 0 by default.
        draw: writes the thumbnail of a slide to a path.
        level: level at which tissue is searched; see :func:`ips.patches.tissue.tissue_level`.
        skip_errors: continue after a slide that cannot be read.
        progress: callback that receives the name of the slide, the blocks read and all blocks.
    """
    results = []
    for slide in slides:
        report = partial(progress or _ignore, slide.name)
        report(0, 1)
        try:
            with slide_patches(slide, resolution=resolution) as patches:
                found = _find(patches, slide.stem, Path(folder), level, draw, report)
                kept, total = len(found.kept), len(found.patches)
                results.append(SlideTissue(slide, kept, total, found.reason or ""))
        except (ImageError, PatchError) as error:
            if not skip_errors:
                raise
            results.append(SlideTissue(slide, 0, 0, str(error), failed=True))
    return results


def tissue_file(folder: Path, name: str) -> Path:
    """Coordinate file of a slide, where TRIDENT stores it too."""
    return folder / "patches" / f"{name}_patches.h5"


def _find(
    patches: ImagePatches,
    name: str,
    folder: Path,
    level: int | None,
    draw: Callable[[Tissue, Path], None],
    progress: Progress,
) -> Tissue:
    """Tissue of one slide, read from its file if it was found before."""
    target = tissue_file(folder, name)
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
    draw(found, folder / "thumbnails" / f"{name}.png")
    save_tissue(target, found)  # last: a slide with this file is finished
    return found


def _ignore(name: str, done: int, total: int) -> None:
    pass
