"""Megapixel MNIST on disk: the layouts and the digits that they use, a few megabytes in all.

    dataset.json    every knob, and a fingerprint of the digits it was drawn from
    train.npz       digit_images (m, 28, 28), digit_classes (m,): each digit that occurs, once
    test.npz        digits (count, 5), digit_places (count, 5, 2): numbers into those, and corners
                    strokes (count, n, 2, 3), noise_places (count, n, 2)

A folder opens without the digits' source, and gives the very images that were drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ips.data.synthetic.digits import CLASSES, DIGIT_SIDE, Split, check_split, load_digits
from ips.data.synthetic.megapixel_mnist import OTHERS, SAME, Layout, MegapixelMNIST, Scenes
from ips.data.synthetic.strokes import STROKE_STOP
from ips.errors import DataError
from ips.files import Arrays, atomic_write, load_arrays
from ips.patches.grid import Edge, Grid

_KIND = {"kind": "megapixel-mnist", "version": 1}
_COUNTS = ("side", "train", "test", "noise")
_SPLITS: tuple[Split, ...] = ("train", "test")


def save_megapixel_mnist(
    out: Path,
    *,
    side: int = 1000,
    train: int = 2000,
    test: int = 400,
    seed: int = 0,
    noise: int | None = None,
    digits: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Draw a data set and write it into the folder ``out``.

    A folder that holds this data set already is left as it is, and one that was interrupted is
    completed; a folder with anything else in it is an error.

    Args:
        out: folder, made where it does not exist.
        side: of the images in pixels.
        train: number of images to train on.
        test: number of images to test on.
        seed: other images for another seed.
        noise: number of noise patterns; one per 30 px of the side where not given.
        digits: folder with MNIST's IDX files; the 5,000 embedded digits where not given.
        progress: called after each image with the number done and the number in all.
    """
    out = Path(out)
    counts = {"train": train, "test": test}
    drawn = {
        split: MegapixelMNIST(
            side, count=counts[split], split=split, seed=seed, noise=noise, digits=digits
        )
        for split in _SPLITS
    }
    fingerprint = load_digits(digits).fingerprint()
    knobs = {"side": side, **counts, "seed": seed, "noise": drawn["train"].noise}
    try:
        _claim(out, knobs=_KIND | knobs | {"digits": fingerprint})
        done = 0
        for split, scenes in drawn.items():
            path = out / f"{split}.npz"
            if not path.exists():
                layouts = []
                for index in range(len(scenes)):
                    layouts.append(scenes.layout(index))
                    if progress is not None:
                        progress(done + index + 1, train + test)
                with atomic_write(path) as stream:
                    np.savez_compressed(stream, **_pack(layouts, scenes))
            done += len(scenes)
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error}): choose another folder") from None


def open_megapixel_mnist(
    folder: Path,
    *,
    split: Split = "train",
    patch_size: int = 50,
    stride: int = 50,
    edge: Edge = "drop",
) -> SavedMegapixelMNIST:
    """The images of one split of a folder that `save_megapixel_mnist` wrote.

    Args:
        folder: where it was written.
        split: which of its two parts.
        patch_size: side of a patch in pixels.
        stride: from patch to patch.
        edge: what happens to patches that reach beyond the image.
    """
    folder = Path(folder)
    check_split(split)
    knobs = _read_knobs(folder)
    side = knobs["side"]
    return SavedMegapixelMNIST(
        _read_arrays(folder / f"{split}.npz", knobs=knobs, count=knobs[split]),
        grid=Grid(side, side, patch=patch_size, stride=stride, edge=edge),
        name=f"{folder.name}/{split}",
    )


def write_png_files(folder: Path, *, count: int) -> Path:
    """Write the first ``count`` test images of a saved data set as PNG; returns their folder."""
    target = Path(folder) / "png"
    target.mkdir(exist_ok=True)
    scenes = open_megapixel_mnist(folder, split="test")
    for index in range(min(count, len(scenes))):
        with atomic_write(target / f"{index}.png") as stream:
            Image.fromarray(scenes[index][0].dense()).save(stream, format="png")
    return target


class SavedMegapixelMNIST(Scenes):
    """Images whose layouts were read from a file, the same in every epoch.

    Args:
        arrays: those of one split's file.
        grid: size of the images and where their patches are.
        name: of the data set, for messages.
    """

    def __init__(self, arrays: Arrays, *, grid: Grid, name: str) -> None:
        super().__init__(
            arrays["digit_images"],
            classes=arrays["digit_classes"].astype(np.int64),
            count=len(arrays["digits"]),
            grid=grid,
            name=name,
        )
        self._arrays = arrays

    def layout(self, index: int) -> Layout:
        """What is where on image ``index``."""
        self._check_index(index)
        return Layout(
            digits=self._arrays["digits"][index].astype(np.int64),
            digit_places=self._arrays["digit_places"][index].astype(np.int64),
            strokes=self._arrays["strokes"][index],
            noise_places=self._arrays["noise_places"][index].astype(np.int64),
        )


def _claim(out: Path, *, knobs: dict[str, Any]) -> None:
    """Write the knobs before anything else, so that an interrupted folder can be completed."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / "dataset.json"
    if path.exists():
        if _read_knobs(out) != knobs:
            raise DataError(f"{out} holds a data set with other settings: choose another folder")
    elif any(out.iterdir()):
        raise DataError(f"{out} is not empty: choose a new or an empty folder")
    else:
        with atomic_write(path) as stream:
            stream.write(json.dumps(knobs, indent=2).encode() + b"\n")


def _pack(layouts: list[Layout], scenes: MegapixelMNIST) -> Arrays:
    used, digits = np.unique([layout.digits for layout in layouts], return_inverse=True)
    return {
        "digit_images": scenes.images[used],
        "digit_classes": scenes.classes[used].astype(np.uint8),
        "digits": digits.reshape(len(layouts), -1).astype(np.int32),
        "digit_places": np.stack([layout.digit_places for layout in layouts]).astype(np.int32),
        "strokes": np.stack([layout.strokes for layout in layouts]),
        "noise_places": np.stack([layout.noise_places for layout in layouts]).astype(np.int32),
    }


def _read_knobs(folder: Path) -> dict[str, Any]:
    path = folder / "dataset.json"
    make = "make one with 'ips data megapixel-mnist'"
    try:
        knobs: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise DataError(f"{folder} holds no megapixel MNIST data set: {make}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): {make} in another folder") from None
    ours = isinstance(knobs, dict) and knobs.items() >= _KIND.items()
    if not ours or not all(isinstance(knobs.get(key), int) for key in _COUNTS):
        raise DataError(f"{path} does not describe a megapixel MNIST data set: {make}")
    return knobs


def _read_arrays(path: Path, *, knobs: dict[str, Any], count: int) -> Arrays:
    remedy = "run 'ips data megapixel-mnist' again with the same settings"
    try:
        arrays = load_arrays(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing: {remedy}") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}): delete it and {remedy}") from None
    bank, digits, noise = len(arrays.get("digit_images", ())), SAME + OTHERS, knobs["noise"]
    room = knobs["side"] - DIGIT_SIDE + 1
    expected: dict[str, tuple[str, tuple[int, ...], int | tuple[int, ...]]] = {
        # type, shape, one more than the largest value
        "digit_images": ("uint8", (bank, DIGIT_SIDE, DIGIT_SIDE), 256),
        "digit_classes": ("uint8", (bank,), CLASSES),
        "digits": ("int32", (count, digits), bank),
        "digit_places": ("int32", (count, digits, 2), room),
        "strokes": ("uint8", (count, noise, 2, 3), STROKE_STOP),
        "noise_places": ("int32", (count, noise, 2), room),
    }
    for key, (kind, shape, stop) in expected.items():
        array = arrays.get(key)
        if array is None or array.shape != shape or array.dtype != kind:
            found = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise DataError(
                f"{path}: expected {key} as {kind} {shape}, found {found}: delete it and {remedy}"
            )
        if not ((array >= 0) & (array < np.asarray(stop))).all():
            raise DataError(f"{path}: {key} is out of range: delete it and {remedy}")
    return arrays
