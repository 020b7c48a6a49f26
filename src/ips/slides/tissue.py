"""Find the tissue of many slides, with one coordinate file and one thumbnail for each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image as PILImage
from rich.console import Console

from ips.errors import ConfigError, ImageError, IPSError, PatchError
from ips.files import atomic_write
from ips.locks import lock_folder
from ips.patches import Edge, ImagePatches
from ips.patches.tissue import NEARLY_ALL, Progress, Tissue, TissueSettings, tissue_patches
from ips.patches.tissue_file import load_tissue, save_tissue
from ips.slides.coords import Resolution, slide_patches
from ips.slides.listing import OUT, list_slides
from ips.work import Place, run

GREEN = (0, 140, 70)
"""Colour of the tissue outline on a thumbnail."""

_SIDE = 1024  # longer side of a thumbnail in pixels
_LINE = 2  # width of the outline in pixels


@dataclass(frozen=True)
class SlideTissue:
    """How much of a slide is tissue."""

    slide: Path
    kept: int  # number of patches with tissue
    total: int
    note: str = ""  # why no patch has tissue, nearly all have, or the slide failed
    failed: bool = False


def find_tissue(
    slides: Iterable[str | Path],
    *,
    out: str | Path,
    resolution: Resolution | None = None,
    settings: TissueSettings | None = None,
    edge: Edge = "fit",
    skip_errors: bool = False,
    place: Place | None = None,
    console: Console | None = None,
) -> list[SlideTissue]:
    """Find the patches with tissue on each slide, and store their coordinates and a thumbnail.

    Finished slides are not read again.

    Args:
        slides: slide files, or folders of slides.
        out: output folder; coordinates go to ``patches``, thumbnails to ``thumbnails``.
        resolution: patch size and resolution to read at; 256 px at level 0 by default.
        settings: how tissue is searched, and what is left out, as
            ``ips.patches.tissue.TissueSettings``.
        edge: ``fit`` patches that leave the slide in by moving them back, ``pad`` them with
            background, as the paper's authors do, or ``drop`` them.
        skip_errors: continue after a slide that cannot be read.
        place: where to work, and on which share of the slides; see `ips.work.Place`.
        console: console for the progress bar.
    """
    place, folder = place or Place(), Path(out)
    share = place.share({file.stem: file for file in list_slides(slides)})
    work = _SlideWork(folder, resolution or Resolution(), settings or TissueSettings(), edge)
    found = {}
    with lock_folder(folder, option=OUT, shard=place.shard):
        for name, result in run(
            work, share, place=place, catch=(ImageError, PatchError), console=console
        ):
            if isinstance(result, IPSError):
                if not skip_errors:
                    raise result
                result = SlideTissue(share[name], 0, 0, str(result), failed=True)
            found[name] = result
    return [found[name] for name in share]


@dataclass(frozen=True)
class _SlideWork:
    """Finds the tissue of one slide: the work of `find_tissue`, in any process."""

    folder: Path
    resolution: Resolution
    settings: TissueSettings
    edge: Edge

    def __call__(self, slide: Path, report: Progress) -> SlideTissue:
        grid = slide_patches(slide, resolution=self.resolution, edge=self.edge)
        with grid as patches:
            found = _find(patches, slide.stem, self.folder, self.settings, report)
            return SlideTissue(slide, len(found.kept), len(found.patches), _note(found))


def tissue_path(folder: Path, name: str) -> Path:
    """Coordinate file of a slide, where TRIDENT stores it too."""
    return folder / "patches" / f"{name}_patches.h5"


def draw_tissue(tissue: Tissue, path: Path) -> None:
    """Write a thumbnail of the slide as PNG: tissue outlined in green, everything else faded."""
    view = tissue.patches.parts[0].thumbnail(_SIDE)
    corners = (tissue.source.coords - np.array(view.offset)) * view.scale  # (n, 2)
    side = tissue.patches.extent * view.scale
    kept = np.zeros(view.pixels.shape[:2], dtype=bool)
    for (x0, y0), (x1, y1) in np.rint(np.stack([corners, corners + side], axis=1)).astype(int):
        kept[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = True
    padded = np.pad(kept, _LINE)
    shifted = [np.roll(padded, step, axis) for step in (-_LINE, _LINE) for axis in (0, 1)]
    outline = kept & ~np.logical_and.reduce(shifted)[_LINE:-_LINE, _LINE:-_LINE]
    picture = np.where(kept[..., None], view.pixels, 128 + view.pixels // 2).astype(np.uint8)
    picture[outline] = GREEN
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as stream:
        PILImage.fromarray(picture).save(stream, format="png")


def _note(found: Tissue) -> str:
    """What to say about a slide: that none or nearly all of its patches have tissue."""
    if found.reason is not None:
        return found.reason
    if len(found.kept) < NEARLY_ALL * len(found.patches):
        return ""
    other = "bright" if found.fluorescent else "dark"
    return (
        "nearly all patches count as tissue: check the thumbnail; if it is wrong, try "
        f"--background {other} or a larger --min-share in another folder"
    )


def _find(
    patches: ImagePatches, name: str, folder: Path, settings: TissueSettings, progress: Progress
) -> Tissue:
    """Tissue of one slide, read from its file if it was found before."""
    target = tissue_path(folder, name)
    if target.exists():
        stored = load_tissue(target, patches.image)
        before = stored.patches
        level = stored.settings.level if settings.level is None else settings.level
        now = _described(patches, replace(settings, level=level))
        then = _described(before, stored.settings)
        if np.array_equal(before.coords, patches.coords):  # no patch is across the border
            now["--edge"] = then["--edge"]
        if changed := [f"{key} {then[key]}" for key in then if then[key] != now[key]]:
            raise ConfigError(
                f"{target} was made with {', '.join(changed)}: give another output folder, or the "
                "same settings"
            )
        return stored
    found = tissue_patches(patches, settings, progress=progress)
    draw_tissue(found, folder / "thumbnails" / f"{name}.png")
    save_tissue(target, found)  # last: a slide with this file is finished
    return found


def _described(patches: ImagePatches, settings: TissueSettings) -> dict[str, object]:
    """All settings of the coordinate file of a slide, in the words of the command line."""
    return {
        "--patch-size": patches.patch_size,
        "a downsample of": patches.downsample,
        "--edge": patches.grid.edge,
        "--tissue-level": settings.level,
        "--min-share": settings.min_share,
        "--background": settings.background,
        "--skip-pen": settings.skip_pen,
        "--skip-blurred": settings.skip_blurred,
    }
