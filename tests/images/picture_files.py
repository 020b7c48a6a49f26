"""Write a picture in every supported format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PILImage

from ips.images import Image, open_image
from ips.images.slide import SlideImage

Pixels = npt.NDArray[np.uint8]
WIDTH, HEIGHT = 150, 132
APERIO = "Aperio Image Library v10.0.0\n150x132 [0,0 150x132] (64x64)|AppMag = 40|MPP = 0.25"


def reduced(pixels: Pixels, by: int) -> Pixels:
    """A coarser level: every ``by``-th pixel, so that expected pixels are exact."""
    return np.ascontiguousarray(pixels[::by, ::by])


def write_tiff(
    path: Path, levels: Sequence[npt.NDArray[Any]], *, sub: bool = False, **options: Any
) -> Path:
    """A tiled TIFF whose further levels are SubIFDs or pages."""
    settings = {"photometric": "rgb", "tile": (32, 48), "compression": "deflate"} | options
    big = settings.pop("bigtiff", False)
    ome = settings.pop("ome", None)
    with tifffile.TiffWriter(path, bigtiff=big, ome=ome) as file:
        file.write(levels[0], subifds=len(levels) - 1 if sub else None, **settings)
        settings.pop("description", None)
        if ome:
            settings["metadata"] = None
        for level in levels[1:]:
            file.write(level, subfiletype=1, **settings)
    return path


def write_svs(path: Path, levels: list[Pixels]) -> Path:
    return write_tiff(path, levels, tile=(64, 64), metadata=None, description=APERIO)


def _png(folder: Path, pixels: Pixels) -> Image:
    PILImage.fromarray(pixels).save(folder / "a.png")
    return open_image(folder / "a.png")


def _npy(folder: Path, pixels: Pixels) -> Image:
    np.save(folder / "a.npy", pixels)
    return open_image(str(folder / "a.npy"))


def _stripped(folder: Path, pixels: Pixels) -> Image:
    options: dict[str, Any] = {"photometric": "rgb", "rowsperstrip": 16}
    tifffile.imwrite(folder / "a.tif", pixels, compression="lzw", predictor=True, **options)
    return open_image(folder / "a.tif")


def _plain(folder: Path, pixels: Pixels) -> Image:
    tifffile.imwrite(folder / "a.tif", pixels, photometric="rgb")
    return open_image(folder / "a.tif")


def _planar(folder: Path, pixels: Pixels) -> Image:
    planes = pixels.transpose(2, 0, 1)
    path = write_tiff(folder / "a.tif", [planes], planarconfig="separate")
    return open_image(path)


def _ome_planes(folder: Path, pixels: Pixels) -> Image:
    planes = pixels.transpose(2, 0, 1)
    axes = {"axes": "CYX"}
    path = folder / "a.ome.tif"
    write_tiff(path, [planes], ome=True, photometric="minisblack", metadata=axes)
    return open_image(path)


def _ome(folder: Path, pixels: Pixels) -> Image:
    levels = [pixels, reduced(pixels, 2)]
    path = folder / "a.ome.tif"
    return open_image(write_tiff(path, levels, sub=True, ome=True, metadata={"axes": "YXS"}))


def _pyramid(folder: Path, pixels: Pixels, **options: Any) -> Image:
    levels = [pixels, reduced(pixels, 2), reduced(pixels, 4)]
    return open_image(write_tiff(folder / "a.tif", levels, **options))


def _generic_slide(folder: Path, pixels: Pixels) -> Image:
    return SlideImage(write_tiff(folder / "a.tif", [pixels], tile=(64, 64)))


def _svs(folder: Path, pixels: Pixels) -> Image:
    return open_image(write_svs(folder / "a.svs", [pixels, reduced(pixels, 2)]))


LOSSLESS: dict[str, Callable[[Path, Pixels], Image]] = {
    "array": lambda folder, pixels: open_image(pixels),
    "npy": _npy,
    "png": _png,
    "tiled": lambda folder, pixels: open_image(write_tiff(folder / "a.tif", [pixels])),
    "bigtiff": lambda folder, pixels: _pyramid(folder, pixels, bigtiff=True),
    "stripped": _stripped,
    "uncompressed": _plain,
    "planar": _planar,
    "pages": _pyramid,
    "subifds": lambda folder, pixels: _pyramid(folder, pixels, sub=True),
    "ome": _ome,
    "ome planes": _ome_planes,
    "openslide": _generic_slide,
    "svs": _svs,
}
