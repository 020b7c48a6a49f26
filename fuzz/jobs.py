"""Small jobs of every long-running command, and a digest of what they leave behind."""

from __future__ import annotations

import csv
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import tifffile
import yaml
from PIL import Image
from safetensors.torch import load_file

_CONFIG = {
    "data": {"kind": "megapixel-mnist", "side": 200, "train": 24, "validation": 8, "test": 6},
    "patches": {"size": 50},
    "encoder": {"name": "thin-resnet", "stages": 1, "width": 8, "norm": True},
    "select": {"keep": 4, "chunk": 4},
    "aggregate": {"heads": 4, "position": True},
    # A state at every step, so that most kills are within an epoch.
    "train": {"epochs": 6, "batch": 4, "warmup": 0.5, "checkpoint_minutes": 0},
    "tasks": {
        "majority": {"kind": "multiclass", "classes": 10},
        "multi": {"kind": "multilabel", "classes": 10},
    },
    "readout": "multi",
}
# Own images, whose best epoch is kept.
_OWN = _CONFIG | {
    "patches": {"size": 64},
    "aggregate": {"heads": 4},
    "train": {"epochs": 4, "batch": 4},
    "tasks": {"grade": {"kind": "binary"}},
    "readout": "grade",
}
_THIN = "--encoder thin-resnet --stages 1 --width 8"
# Differ between runs that are the same: times and memory.
_MEASURED = {"seconds", "peak_mb"}


@dataclass(frozen=True)
class Job:
    """A command that writes to a folder.

    Attributes:
        name: name of the job.
        words: the command, without ``ips``; ``{home}`` is the folder of the inputs, ``{out}`` the
            output folder.
        again: words to add when the command is repeated after an interruption.
    """

    name: str
    words: str
    again: str = ""

    def command(self, home: Path, out: Path, *, again: bool = False) -> list[str]:
        """The command as words for `subprocess`."""
        words = f"{self.words} {self.again if again else ''}".format(home=home, out=out)
        return [sys.executable, "-m", "ips", *words.split()]


TRAIN = Job("train", "train {home}/tiny.yaml --run {out}", again="--resume")
TRAIN_TWO = Job("train two", f"{TRAIN.words} --set train.devices=2", again="--resume")
FOLDS = Job("folds", "train {home}/own.yaml --run {out} --folds 5", again="--resume")
PRETRAIN = Job(
    "pretrain",
    "pretrain {home}/slides --run {out} --patch-size 16 --patches-per-slide 40 --batch 8 "
    f"--hidden 16 --projection 8 --epochs 8 --tau 0.9 --checkpoint-minutes 0 {_THIN}",
    again="--resume",
)
PRETRAIN_TWO = Job("pretrain two", f"{PRETRAIN.words} --devices 2", again="--resume")
TISSUE = Job("slides tissue", "slides tissue {home}/slides --out {out} --patch-size 32")
FEATURES = Job(
    "slides features",
    "slides features {home}/slides --out {out} --patch-size 32 --weights none --crop 32 " + _THIN,
)
EXPLAIN = Job("explain", "explain {home}/run {home}/slides/0.png --out {out}")
REPORT = Job("report", "report {home}/run --out {out}/report.html")


def make_inputs(home: Path, *, run: bool) -> None:
    """Write the inputs of all jobs: a config, slides, and a trained run if it is needed."""
    (home / "slides").mkdir(parents=True, exist_ok=True)
    (home / "tiny.yaml").write_text(yaml.safe_dump(_CONFIG))
    own = _OWN | {"data": {"kind": "table", "csv": str(home / "own.csv")}}
    (home / "own.yaml").write_text(yaml.safe_dump(own))
    rng = np.random.default_rng(0)
    for number in range(4):
        pixels = np.full((256, 256, 3), 245, np.uint8)
        pixels[32:224, 32:224] = rng.integers(60, 200, (192, 192, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(home / "slides" / f"{number}.png")
    (home / "own").mkdir(exist_ok=True)
    rows = ["path,grade"]
    for number in range(30):
        pixels = rng.integers(60, 200, (128, 128, 3), dtype=np.uint8)
        pixels[32:96, 32:96, number % 2] = 250
        Image.fromarray(pixels).save(home / "own" / f"{number}.png")
        rows.append(f"own/{number}.png,{number % 2}")
    (home / "own.csv").write_text("\n".join(rows) + "\n")
    if run and not (home / "run" / "figures" / "training.png").is_file():
        subprocess.run(
            TRAIN.command(home, home / "run", again=True), check=True, env=environment(home)
        )


def environment(home: Path) -> dict[str, str]:
    """Environment of a job: one thread, and a cache of its own."""
    return os.environ | {"OMP_NUM_THREADS": "1", "IPS_CACHE": str(home / "cache")}


def digest(folder: Path) -> dict[str, str]:
    """What must be identical after any interruption, by file: names, and content where it is set.

    Figures, reports and logs count by their name only.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and "tensorboard" not in path.parts:
            read = _READERS.get(path.suffix)
            found[name] = "" if read is None else hashlib.sha256(read(path)).hexdigest()[:16]
    return found


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Names of the files that only one of two digests has, or that differ."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _tensors(path: Path) -> bytes:
    tensors = sorted(load_file(path).items())
    return b"".join(name.encode() + t.numpy().tobytes() for name, t in tensors)


def _arrays(path: Path) -> bytes:
    with h5py.File(path) as file:
        return b"".join(name.encode() + np.asarray(file[name]).tobytes() for name in sorted(file))


def _rows(path: Path) -> bytes:
    with path.open(newline="") as file:
        rows = [
            {k: v for k, v in row.items() if k not in _MEASURED} for row in csv.DictReader(file)
        ]
    return repr(rows).encode()


def _pixels(path: Path) -> bytes:
    with tifffile.TiffFile(path) as file:
        return b"".join(page.asarray().tobytes() for page in file.pages)


_READERS: dict[str, Callable[[Path], bytes]] = {
    ".safetensors": _tensors,
    ".h5": _arrays,
    ".csv": _rows,
    ".json": Path.read_bytes,
    ".jsonl": Path.read_bytes,
    ".geojson": Path.read_bytes,
    ".yaml": Path.read_bytes,
    ".tif": _pixels,
}


def choose(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """The jobs with these names; all without names."""
    return [job for job in jobs if not names or job.name in names]
