"""Megapixel MNIST on disk: the layouts of the images and the digits in them, a few megabytes.

    dataset.json    the settings, and a fingerprint of the digits
    train.npz       digit_images (m, 28, 28), digit_classes (m,): every digit in use
                    digits (count, 5): indices into both
                    digit_places (count, 5, 2): their top-left corners
                    noise_bank (k, 28, 28): the noise patterns
                    noise (count, n): indices into them
                    noise_places (count, n, 2): their top-left corners
    test.npz        the same; and validation.npz, if there are validation images

A folder can be opened without MNIST, and gives the same images as `MegapixelMNIST`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ips.data.output import locks_output
from ips.data.split import Split, check_split
from ips.data.synthetic.digits import CLASSES, DIGIT_SIDE, Arrays, load_arrays, load_digits
from ips.data.synthetic.megapixel_mnist import (
    DIGITS,
    SMALLEST_SIDE,
    Layout,
    MegapixelMNIST,
    SceneDataset,
)
from ips.data.synthetic.noise import NoiseStyle
from ips.errors import DataError, because
from ips.files import atomic_write, write_text
from ips.locks import LOCK
from ips.patches.image import Edge, Grid

_KIND = {"kind": "megapixel-mnist", "version": 2}  # version 1 had other noise
_MOST = 10**9
_RANGES = {
    "side": (SMALLEST_SIDE, 40_000),  # such images take 1.6 GB in memory
    **{"train": (1, _MOST), "validation": (0, _MOST), "test": (1, _MOST), "noise": (0, _MOST)},
}


@locks_output
def save_megapixel_mnist(
    out: Path,
    *,
    side: int = 1000,
    train: int = 2000,
    validation: int = 0,
    test: int = 400,
    seed: int = 0,
    noise: int | None = None,
    noise_style: NoiseStyle = "lines",
    digits: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Draw a data set and write it to the folder ``out``.

    An incomplete data set of the same settings is completed; any other content is an error.

    Args:
        out: output folder, created if missing.
        side, seed, noise, noise_style, digits: see `MegapixelMNIST`.
        train, validation, test: numbers of images. Validation images use a tenth of the training
            digits, which training images then do not.
        progress: callback that receives the number of images done and of all images.
    """
    out, source = Path(out), load_digits(digits)
    counts: dict[Split, int] = {"train": train, "validation": validation, "test": test}
    make = partial(MegapixelMNIST, side, seed=seed, noise=noise, noise_style=noise_style)
    parts = [
        make(count=count, split=split, hold_out=validation > 0, digits=source)
        for split, count in counts.items()
        if count or split != "validation"
    ]
    settings: dict[str, Any] = {
        **_KIND,
        "train": train,
        "validation": validation,
        "test": test,
        "side": side,
        "seed": seed,
        "noise": parts[0].noise,
        "noise_style": noise_style,
        "digits": source.fingerprint(),
    }
    try:
        _write_settings(out, settings)
        done = 0
        for scenes in parts:
            path = out / f"{scenes.split}.npz"
            if not path.exists():
                layouts = []
                for index in range(len(scenes)):
                    layouts.append(scenes.layout(index))
                    if progress is not None:
                        progress(done + index + 1, sum(counts.values()))
                with atomic_write(path) as stream:
                    np.savez_compressed(stream, **_pack(layouts, scenes))
            done += len(scenes)
    except OSError as error:
        reason = because(error, remedy="choose another folder")
        raise DataError(f"{out} cannot be written {reason}") from None


class SavedMegapixelMNIST(SceneDataset):
    """One split of a folder that `save_megapixel_mnist` wrote; all epochs have the same images."""

    def __init__(
        self,
        folder: Path,
        *,
        split: Split = "train",
        patch_size: int = 50,
        stride: int = 50,
        edge: Edge = "drop",
    ) -> None:
        folder = Path(folder)
        check_split(split)
        settings = _read_settings(folder)
        super().__init__(f"{folder.name}/{split}", count=settings[split])
        side = settings["side"]
        self.grid = Grid(side, side, patch=patch_size, stride=stride, edge=edge)
        path = folder / f"{split}.npz"
        self._arrays = _read_arrays(path, settings=settings, count=len(self))
        self.images, self.noise_bank = self._arrays["digit_images"], self._arrays["noise_bank"]
        self.classes = self._arrays["digit_classes"].astype(np.int64)

    def layout(self, index: int) -> Layout:
        self.check_index(index)
        return Layout(
            digits=self._arrays["digits"][index].astype(np.int64),
            digit_places=self._arrays["digit_places"][index].astype(np.int64),
            noise=self._arrays["noise"][index].astype(np.int64),
            noise_places=self._arrays["noise_places"][index].astype(np.int64),
        )


def has_validation(folder: Path) -> bool:
    """Whether a saved data set has validation images."""
    return bool(_read_settings(folder)["validation"])


@locks_output
def write_png_files(folder: Path, *, count: int) -> Path:
    """Write the first ``count`` test images of a saved data set as PNG; returns their folder."""
    target = Path(folder) / "png"
    target.mkdir(exist_ok=True)
    scenes = SavedMegapixelMNIST(folder, split="test")
    for index in range(min(count, len(scenes))):
        with atomic_write(target / f"{index}.png") as stream:
            Image.fromarray(scenes[index][0].dense()).save(stream, format="png")
    return target


def _write_settings(out: Path, settings: dict[str, Any]) -> None:
    """Write the settings first, so that an interrupted data set can be completed."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "dataset.json"
    if path.exists():
        if _read_settings(out) != settings:
            raise DataError(f"{out} holds a data set with other settings: choose another folder")
    elif any(path.name != LOCK for path in out.iterdir()):
        raise DataError(f"{out} is not empty: choose a new or an empty folder")
    else:
        write_text(path, json.dumps(settings, indent=2) + "\n")


def _pack(layouts: list[Layout], scenes: MegapixelMNIST) -> Arrays:
    used, digits = np.unique([layout.digits for layout in layouts], return_inverse=True)
    return {
        "digit_images": scenes.images[used],
        "digit_classes": scenes.classes[used].astype(np.uint8),
        "digits": digits.reshape(len(layouts), -1).astype(np.int32),
        "digit_places": np.stack([layout.digit_places for layout in layouts]).astype(np.int32),
        "noise_bank": scenes.noise_bank,
        "noise": np.stack([layout.noise for layout in layouts]).astype(np.int32),
        "noise_places": np.stack([layout.noise_places for layout in layouts]).astype(np.int32),
    }


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    remedy = "make one with 'ips data megapixel-mnist'"
    try:
        settings: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{folder} holds no megapixel MNIST data set: {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        reason = because(error, remedy=f"{remedy} in another folder")
        raise DataError(f"{path} cannot be read {reason}") from None
    if isinstance(settings, dict) and settings.items() >= (_KIND | {"version": 1}).items():
        raise DataError(
            f"{folder} was made by an earlier version, with other noise than the published one: "
            f"{remedy} in another folder"
        )
    valid = isinstance(settings, dict) and settings.items() >= _KIND.items()
    if not valid or not all(
        isinstance(settings.get(key), int) and low <= settings[key] <= high
        for key, (low, high) in _RANGES.items()
    ):
        raise DataError(f"{path} does not describe a megapixel MNIST data set: {remedy}")
    return settings


def _read_arrays(path: Path, *, settings: dict[str, Any], count: int) -> Arrays:
    remedy = "run 'ips data megapixel-mnist' again with the same settings"
    try:
        arrays = load_arrays(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {remedy}") from None
    except (OSError, ValueError) as error:
        reason = because(error, remedy=f"delete it and {remedy}")
        raise DataError(f"{path} cannot be read {reason}") from None
    digits, bank = (len(arrays.get(key, ())) for key in ("digit_images", "noise_bank"))
    noise = settings["noise"]
    stop_place = settings["side"] - DIGIT_SIDE + 1
    expected: dict[str, tuple[str, tuple[int, ...], int]] = {
        # dtype, shape, upper bound (exclusive)
        "digit_images": ("uint8", (digits, DIGIT_SIDE, DIGIT_SIDE), 256),
        "digit_classes": ("uint8", (digits,), CLASSES),
        "digits": ("int32", (count, DIGITS), digits),
        "digit_places": ("int32", (count, DIGITS, 2), stop_place),
        "noise_bank": ("uint8", (bank, DIGIT_SIDE, DIGIT_SIDE), 256),
        "noise": ("int32", (count, noise), bank),
        "noise_places": ("int32", (count, noise, 2), stop_place),
    }
    for key, (dtype, shape, stop) in expected.items():
        array = arrays.get(key)
        if array is None or array.shape != shape or array.dtype != dtype:
            found = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise DataError(
                f"{path}: expected {key} as {dtype} {shape}, found {found}: delete it and {remedy}"
            )
        if not ((array >= 0) & (array < stop)).all():
            raise DataError(f"{path}: {key} is out of range: delete it and {remedy}")
    return arrays
