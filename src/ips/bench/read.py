"""Patches per second of every reader, and what reading ahead is worth."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
import torch
from PIL import Image as PILImage
from torch import Tensor

from ips.bench.cases import landscapes
from ips.bench.figures import grouped_bars
from ips.bench.machine import facts
from ips.bench.report import Report
from ips.bench.rounds import Log, in_turns
from ips.images import Image, open_image
from ips.images.slide import SlideImage
from ips.nn import evaluating, resnet18
from ips.patches import ImagePatches, PatchSource, prefetch

READERS = ("tiled TIFF", "TIFF in strips", "PNG", "npy", "OpenSlide")
ORDERS = ("file order", "shuffled", "half overlapping")
_BLOCK = 64  # patches asked for at a time


def bench_read(
    *, side: int = 4096, patch: int = 128, rounds: int = 3, quick: bool = False, log: Log
) -> Report:
    """Read all patches of the same picture from each kind of file.

    Each run opens the file anew, so what a format decodes at the first read is counted; the
    operating system has the file in its cache.

    Args:
        side: of the picture in pixels.
        patch: side of a patch.
        rounds: timed runs of every reader.
        quick: a tiny picture, to see that all works.
        log: callback that receives a line of text after every run.
    """
    side, patch = (512, 64) if quick else (side, patch)
    device = torch.device("cpu")
    with tempfile.TemporaryDirectory(prefix="ips-bench-") as folder:
        openers = _files(Path(folder), side)
        arms: dict[str, Callable[[], int]] = {
            f"{reader}, {order}": partial(_read_all, opener, patch, order)
            for reader, opener in openers.items()
            for order in ORDERS
        }
        taken = in_turns(arms, rounds=rounds, device=device, log=log)
        rate = {
            reader: {
                order: taken.first[f"{reader}, {order}"] / taken.median(f"{reader}, {order}")
                for order in ORDERS
            }
            for reader in READERS
        }
        ahead = _ahead(openers["tiled TIFF"], patch, rounds=rounds, quick=quick, log=log)
    return Report(
        name="read",
        data={
            "machine": facts(device),
            "quick": quick,
            "rounds": rounds,
            "settings": {"side": side, "patch": patch, "tile": 256, "block": _BLOCK},
            "seconds": taken.seconds,
            "patches_per_second": rate,
            "ahead": ahead,
        },
        header=("reader", *(f"{order}, patches/s" for order in ORDERS)),
        rows=[(name, *(f"{r:,.0f}" for r in kinds.values())) for name, kinds in rate.items()],
        notes=[f"reading ahead: {ahead['ratio']} times as fast as one after the other"],
        figure=grouped_bars(
            rate, title=f"Reading patches of {patch} px from {side:,} px", unit="patches per second"
        ),
    )


def _files(folder: Path, side: int) -> dict[str, Callable[[], Image]]:
    """The same picture in each format, as functions that open it."""
    pixels = landscapes(1, height=side, width=side)[0].permute(1, 2, 0).numpy()  # (h, w, 3)
    pixels = np.ascontiguousarray(pixels)
    tiled, strips = folder / "tiled.tif", folder / "strips.tif"
    options = {"compression": "deflate", "photometric": "rgb"}
    tifffile.imwrite(tiled, pixels, tile=(256, 256), **options)
    tifffile.imwrite(strips, pixels, rowsperstrip=16, **options)
    PILImage.fromarray(pixels).save(folder / "picture.png")
    np.save(folder / "picture.npy", pixels)
    return {
        "tiled TIFF": partial(open_image, tiled),
        "TIFF in strips": partial(open_image, strips),
        "PNG": partial(open_image, folder / "picture.png"),
        "npy": partial(open_image, folder / "picture.npy"),
        "OpenSlide": partial(SlideImage, tiled),
    }


def _read_all(opener: Callable[[], Image], patch: int, order: str) -> int:
    """Read every patch once; how many there were."""
    stride = patch // 2 if order == "half overlapping" else patch
    with ImagePatches(opener(), patch_size=patch, stride=stride) as source:
        numbers = torch.arange(len(source))
        if order == "shuffled":
            numbers = torch.randperm(len(source), generator=torch.Generator().manual_seed(0))
        for block in numbers.split(_BLOCK):
            source.read(block)
        return len(source)


def _ahead(
    opener: Callable[[], Image], patch: int, *, rounds: int, quick: bool, log: Log
) -> dict[str, Any]:
    """Reading alone, embedding alone, one after the other, and one while the other."""
    device = torch.device("cpu")
    encoder = resnet18(stages=1 if quick else 2, width=16)

    def run(blocks: Callable[[PatchSource], Iterator[Tensor]], embed: bool) -> None:
        with ImagePatches(opener(), patch_size=patch) as source, evaluating(encoder):
            for patches in blocks(source):
                if embed:
                    encoder(patches.float() / 255)

    def still(source: PatchSource) -> Iterator[Tensor]:
        one = source.read(range(min(_BLOCK, len(source))))
        for _ in range(0, len(source), _BLOCK):
            yield one

    def then(source: PatchSource) -> Iterator[Tensor]:
        for block in torch.arange(len(source)).split(_BLOCK):
            yield source.read(block)

    def beside(source: PatchSource) -> Iterator[Tensor]:
        for _, patches in prefetch(source, size=_BLOCK, device=device):
            yield patches

    arms = {
        "reading alone": partial(run, then, False),
        "embedding alone": partial(run, still, True),
        "one after the other": partial(run, then, True),
        "reading ahead": partial(run, beside, True),
    }
    taken = in_turns(arms, rounds=rounds, device=device, log=log)
    ratio = taken.ratio("reading ahead", to="one after the other")
    return {"seconds": taken.seconds, "ratio": ratio}
