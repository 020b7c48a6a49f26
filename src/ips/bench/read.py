"""Benchmark of the image readers: patches per second, and the gain from prefetching."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.bench.cases import multiscale_noise
from ips.bench.figures import rate_bars
from ips.bench.report import Report
from ips.bench.timing import Log, ignore, run_alternating
from ips.images import Image, open_image
from ips.images.slide import SlideImage
from ips.nn import evaluating, resnet18
from ips.patches import ImagePatches, PatchSource, prefetch

ORDERS = ("file order", "shuffled", "half overlapping")
_BLOCK = 64  # patches per read
_CPU = torch.device("cpu")


def bench_read(
    *, side: int = 4096, patch: int = 128, rounds: int = 3, quick: bool = False, log: Log = ignore
) -> Report:
    """Read all patches of the same picture from each kind of file.

    Each run opens the file again, so the time includes the decoding of formats that can only be
    decoded as a whole. The file is in the cache of the operating system.

    Args:
        side: side of the picture in pixels.
        patch: side of a patch in pixels.
        rounds: number of timed runs of every reader.
        quick: use a tiny picture, to test the benchmark itself; the numbers mean nothing.
        log: callback that receives a line of text after every run.
    """
    side, patch = (512, 64) if quick else (side, patch)
    with tempfile.TemporaryDirectory(prefix="ips-bench-") as folder:
        openers = _write_files(Path(folder), side)
        arms: dict[str, Callable[[], int]] = {
            f"{reader}, {order}": partial(_read_all, opener, patch, order)
            for reader, opener in openers.items()
            for order in ORDERS
        }
        timings = run_alternating(arms, rounds=rounds, device=_CPU, log=log)
        rates = {
            reader: {
                order: timings.results[f"{reader}, {order}"] / timings.median(f"{reader}, {order}")
                for order in ORDERS
            }
            for reader in openers
        }
        gain = prefetch_gain(openers["tiled TIFF"], patch, rounds=rounds, quick=quick, log=log)
    return Report(
        name="read",
        data={
            "rounds": rounds,
            "settings": {"side": side, "patch": patch, "tile": 256, "block": _BLOCK},
            "seconds": timings.seconds,
            "patches_per_second": rates,
            "prefetch": gain,
        },
        device=_CPU,
        quick=quick,
        header=("reader", *(f"{order}, patches/s" for order in ORDERS)),
        rows=[(name, *(f"{r:,.0f}" for r in orders.values())) for name, orders in rates.items()],
        notes=[f"prefetching: {gain['ratio']} times as fast as reading and embedding in turn"],
        figure=rate_bars(rates, title=f"Reading patches of {patch} px from {side:,} px"),
    )


def _write_files(folder: Path, side: int) -> dict[str, Callable[[], Image]]:
    """Write the same picture in each format; returns functions that open it."""
    picture = multiscale_noise(1, height=side, width=side)[0].permute(1, 2, 0)  # (h, w, 3)
    pixels = picture.contiguous().numpy()
    tiled, strips = folder / "tiled.tif", folder / "strips.tif"
    png, npy = folder / "picture.png", folder / "picture.npy"
    options = {"compression": "deflate", "photometric": "rgb"}
    tifffile.imwrite(tiled, pixels, tile=(256, 256), **options)
    tifffile.imwrite(strips, pixels, rowsperstrip=16, **options)
    PILImage.fromarray(pixels).save(png)
    np.save(npy, pixels)
    return {
        "tiled TIFF": partial(open_image, tiled),
        "TIFF in strips": partial(open_image, strips),
        "PNG": partial(open_image, png),
        "npy": partial(open_image, npy),
        "OpenSlide": partial(SlideImage, tiled),
    }


def _read_all(opener: Callable[[], Image], patch: int, order: str) -> int:
    """Read every patch once; returns the number of patches."""
    stride = patch // 2 if order == "half overlapping" else patch
    with ImagePatches(opener(), patch_size=patch, stride=stride) as source:
        indices = torch.arange(len(source))
        if order == "shuffled":
            indices = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))
        for block in indices.split(_BLOCK):
            source.read(block)
        return len(source)


def prefetch_gain(
    opener: Callable[[], Image], patch: int, *, rounds: int, quick: bool, log: Log
) -> dict[str, Any]:
    """Time reading only, embedding only, both in turn, and both at once with `prefetch`."""
    encoder = resnet18(stages=1 if quick else 2, width=16)

    def run(blocks: Callable[[PatchSource], Iterable[Tensor]], embed: bool) -> None:
        with ImagePatches(opener(), patch_size=patch) as source, evaluating(encoder):
            for patches in blocks(source):
                if embed:
                    encoder(patches.float() / 255)

    def same_block(source: PatchSource) -> Iterable[Tensor]:
        block = source.read(range(min(_BLOCK, len(source))))
        return repeat(block, math.ceil(len(source) / _BLOCK))

    def read_blocks(source: PatchSource) -> Iterable[Tensor]:
        return map(source.read, torch.arange(len(source)).split(_BLOCK))

    def prefetch_blocks(source: PatchSource) -> Iterable[Tensor]:
        return (patches for _, patches in prefetch(source, size=_BLOCK, device=_CPU))

    arms = {
        "read only": partial(run, read_blocks, False),
        "embed only": partial(run, same_block, True),
        "read, then embed": partial(run, read_blocks, True),
        "prefetch": partial(run, prefetch_blocks, True),
    }
    timings = run_alternating(arms, rounds=rounds, device=_CPU, log=log)
    return {
        "seconds": timings.seconds,
        "ratio": timings.ratio("prefetch", to="read, then embed"),
    }
