"""Images and slides: every patch of the finest level is read, and a thumbnail of each other."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile
from PIL import Image as PILImage

from fuzz.family import Family, Reading, Seed
from fuzz.formats import edit_npy, edit_png, edit_tiff
from ips.images import open_image
from ips.patches import open_patches

Pixels = npt.NDArray[np.uint8]

WIDTH, HEIGHT, PATCH = 75, 66, 16
_MAX_PATCHES = 64  # damage can make an image larger
_MAX_SIDE, _MAX_AREA = 256, 2000**2
_APERIO = "Aperio Image Library v10.0.0\n75x66 [0,0 75x66] (16x16)|AppMag = 40|MPP = 0.25"


def digest(array: npt.NDArray[Any]) -> str:
    """Short hash of the bytes of an array."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def picture(channels: int = 3) -> Pixels:
    """A smooth picture with some noise; no two patches are equal."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    noise = np.random.default_rng(0).integers(0, 12, (HEIGHT, WIDTH, channels))
    slopes = np.stack([3 * x, 2 * y, x + y][:channels], axis=2)
    pixels: Pixels = (slopes % 240 + noise).astype(np.uint8)
    return pixels


def read_image(path: Path) -> Reading:
    """Read an image as `ips predict` and `ips view` do."""
    with open_image(path) as image, open_patches(image, patch_size=PATCH) as patches:
        count = len(patches)
        step = max(1, count // _MAX_PATCHES)
        pixels = [patches.read([index]).numpy() for index in range(0, count, step)]
        for level, (width, height) in enumerate(image.level_dimensions):
            size = min(width, _MAX_SIDE), min(height, _MAX_SIDE)
            pixels.append(image.read_region((0, 0), level, size))
        width, height = image.dimensions
        if width * height < _MAX_AREA:
            pixels.append(patches.parts[0].thumbnail(32).pixels)
        geometry = (
            *(image.level_dimensions, image.channels, image.mpp, image.magnification),
            *(image.bounds, count),
        )
        return Reading(geometry, [digest(array) for array in pixels])


def _pillow(kind: str, pixels: Pixels, **options: Any) -> bytes:
    out = io.BytesIO()
    grey = pixels.shape[2] == 1
    PILImage.fromarray(pixels[..., 0] if grey else pixels).save(out, kind, **options)
    return out.getvalue()


def _palette(kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    PILImage.fromarray(picture()).quantize(16).save(out, kind, **options)
    return out.getvalue()


def _transparent(kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    alpha = np.full((HEIGHT, WIDTH, 1), 200, np.uint8)
    PILImage.fromarray(np.concatenate([picture(), alpha], axis=2)).save(out, kind, **options)
    return out.getvalue()


def _tiff(*levels: Pixels, sub: bool = False, **options: Any) -> bytes:
    out = io.BytesIO()
    big, ome = options.pop("bigtiff", False), options.pop("ome", None)
    with tifffile.TiffWriter(out, bigtiff=big, ome=ome) as file:
        file.write(levels[0], subifds=len(levels) - 1 if sub else None, **options)
        options.pop("description", None)
        options["metadata"] = None
        for level in levels[1:]:
            file.write(level, subfiletype=1, **options)
    return out.getvalue()


def _npy(array: npt.NDArray[Any]) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _seeds(suffix: str, files: dict[str, bytes]) -> tuple[Seed, ...]:
    return tuple(Seed(name, f"picture{suffix}", data, read_image) for name, data in files.items())


def families() -> list[Family]:
    """All families of images."""
    rgb, grey = picture(), picture(1)
    half, quarter = rgb[::2, ::2].copy(), rgb[::4, ::4].copy()
    tiled: dict[str, Any] = {"photometric": "rgb", "tile": (16, 32), "compression": "deflate"}
    strips: dict[str, Any] = {"photometric": "rgb", "rowsperstrip": 16}
    plain = "its bytes are the pixels, without a checksum"
    coded = "its decoder accepts most damaged codes, and there is no checksum"
    header = "its header has no checksum, and the pixels of another size are all there"
    return [
        Family(
            "png",
            _seeds(
                ".png",
                {
                    "rgb": _pillow("png", rgb),
                    "grey": _pillow("png", grey),
                    "palette": _palette("png"),
                    "alpha": _transparent("png"),
                },
            ),
            edit=edit_png,
        ),
        Family(
            "jpeg",
            _seeds(
                ".jpg",
                {
                    "rgb": _pillow("jpeg", rgb),
                    "grey": _pillow("jpeg", grey),
                    "progressive": _pillow("jpeg", rgb, progressive=True),
                },
            ),
            values=coded,
            geometry=header,
        ),
        Family(
            "bmp",
            _seeds(".bmp", {"rgb": _pillow("bmp", rgb), "palette": _palette("bmp")}),
            values=plain,
            geometry=header,
        ),
        Family(
            "gif",
            _seeds(".gif", {"palette": _palette("gif")}),
            values=coded,
            geometry=header,
        ),
        Family(
            "webp",
            _seeds(
                ".webp",
                {
                    "lossless": _pillow("webp", rgb, lossless=True),
                    "lossy": _pillow("webp", rgb),
                    "alpha": _transparent("webp"),
                },
            ),
            values=coded,
            geometry=header,
        ),
        Family(
            "npy",
            _seeds(
                ".npy", {"rgb": _npy(rgb), "grey": _npy(grey[..., 0]), "F": _npy(rgb.T.copy().T)}
            ),
            edit=edit_npy,
            values=plain,
            geometry=header,
        ),
        Family(
            "tiff-strips",
            _seeds(
                ".tif",
                {
                    "plain": _tiff(rgb, photometric="rgb"),
                    "lzw": _tiff(rgb, **strips, compression="lzw", predictor=True),
                    "deflate": _tiff(rgb, **strips, compression="deflate"),
                    "packbits": _tiff(grey[..., 0], rowsperstrip=16, compression="packbits"),
                    "planes": _tiff(
                        rgb.transpose(2, 0, 1).copy(),
                        **strips,
                        planarconfig="separate",
                        compression="deflate",
                    ),
                    "big": _tiff(rgb, **strips, bigtiff=True),
                },
            ),
            edit=edit_tiff,
            values=coded,
            geometry=header,
        ),
        Family(
            "tiff-tiles",
            _seeds(
                ".tif",
                {
                    "deflate": _tiff(rgb, **tiled),
                    "plain": _tiff(rgb, **(tiled | {"compression": None})),
                    "jpeg": _tiff(rgb, **(tiled | {"compression": "jpeg"})),
                    "lzw": _tiff(rgb, **(tiled | {"compression": "lzw"})),
                    "zstd": _tiff(rgb, **(tiled | {"compression": "zstd"})),
                    "jpeg2000": _tiff(rgb, **(tiled | {"compression": "jpeg2000"})),
                    "webp": _tiff(rgb, **(tiled | {"compression": "webp"})),
                    "big": _tiff(rgb, **tiled, bigtiff=True),
                },
            ),
            edit=edit_tiff,
            values=coded,
            geometry=header,
        ),
        Family(
            "tiff-pyramid",
            _seeds(
                ".tif",
                {
                    "pages": _tiff(rgb, half, quarter, **tiled),
                    "subifds": _tiff(rgb, half, quarter, sub=True, **tiled),
                    "ome": _tiff(rgb, half, sub=True, ome=True, **tiled),
                    "big": _tiff(rgb, half, **tiled, bigtiff=True),
                    "resolution": _tiff(rgb, half, **tiled, resolution=(40000, 40000)),
                },
            ),
            edit=edit_tiff,
            values=coded,
            geometry=header,
        ),
        Family(
            "svs",
            tuple(
                Seed(name, "slide.svs", data, read_image)
                for name, data in {
                    "deflate": _tiff(
                        *(rgb, half),
                        **(tiled | {"tile": (16, 16)}),
                        description=_APERIO,
                        metadata=None,
                    ),
                    "jpeg": _tiff(
                        *(rgb, half),
                        **(tiled | {"tile": (16, 16), "compression": "jpeg"}),
                        description=_APERIO,
                        metadata=None,
                    ),
                }.items()
            ),
            edit=edit_tiff,
            values=coded,
            geometry=header,
        ),
    ]
