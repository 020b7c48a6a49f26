"""Compare features on Ray with those of one process: the same bytes, and what Ray costs.

    python benchmarks/ray_features.py                # 40 drawn slides, one of them truncated

First, two workers extract the features of all slides; one worker is killed on the way. All files
must be byte for byte those of one process, and the truncated slide must have the same sentence.
Then the arms take turns: one process, Ray with one worker, and Ray with two. Every process has one
thread, and Ray's workers have the priority of other processes. The cluster is started before, the
workers are started within the time. Processor time is that of this process, of the cluster and of
all workers; unlike time on the clock, it hardly depends on other work on the machine.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray calls it so

import ray
import torch

from ips.data.synthetic.tissue_slides import write_tissue_slides
from ips.nn import resnet18
from ips.patches import ImagePatches
from ips.slides.coords import Resolution, slide_patches
from ips.slides.features import FeatureExtractor, extract_features
from ips.work import Place
from ips.work.on_ray import connected

PATCH = 128


@dataclass(frozen=True)
class Opener:
    """Opens the patches of a slide; the first process that opens ``fatal`` kills itself."""

    fatal: str = ""
    marker: Path = Path()

    def __call__(self, path: Path) -> ImagePatches:
        if path.stem == self.fatal and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return slide_patches(path, resolution=Resolution(PATCH))


def draw(folder: Path, count: int, side: int) -> dict[str, Path]:
    """Slides by name; the last one is truncated."""
    write_tissue_slides(folder, count=count, side=side)
    slides = {path.stem: path for path in sorted((folder / "slides").iterdir())}
    last = list(slides.values())[-1]
    last.write_bytes(last.read_bytes()[: last.stat().st_size // 2])
    return slides


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Meter(Thread):
    """Adds up the processor time of this process and of all that it starts, also of dead ones.

    They are looked at again and again, because a dead worker of Ray leaves its time to nobody.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: dict[tuple[int, float], float] = {}

    def run(self) -> None:
        psutil = ray._private.utils.psutil  # a copy that Ray brings
        me = psutil.Process()
        while True:
            for process in (me, *me.children(recursive=True)):
                with suppress(psutil.Error):
                    key = process.pid, process.create_time()
                    self.seconds[key] = sum(process.cpu_times()[:2])
            time.sleep(0.1)

    def total(self) -> float:
        return sum(list(self.seconds.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=40)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    extractor = FeatureExtractor(resnet18(width=32), name="resnet18")
    arms = {
        "one process": Place(),
        "Ray, 1 worker": Place(ray="local", workers=1),
        "Ray, 2 workers": Place(ray="local", workers=2),
    }
    meter = Meter()
    meter.start()
    with TemporaryDirectory() as name:
        folder = Path(name)
        slides = draw(folder / "drawn", arguments.slides, arguments.side)

        def extract(out: str, place: Place, opener: Opener) -> tuple[float, float]:
            start, before = time.perf_counter(), meter.total()
            states = extract_features(
                slides,
                folder / out,
                extractor=extractor,
                open_slide=opener,
                skip_errors=True,
                place=place,
            )
            assert [s.state for s in states].count("failed") == 1
            time.sleep(0.2)  # until the meter has looked again
            return time.perf_counter() - start, meter.total() - before

        begin = time.perf_counter()
        with connected(arms["Ray, 2 workers"]):
            print(f"cluster started in {time.perf_counter() - begin:.1f} s")
            fatal = Opener(list(slides)[len(slides) // 4], folder / "killed")
            extract("killed-worker", arms["Ray, 2 workers"], fatal)
            assert fatal.marker.exists()
            extract("reference", Place(), Opener())
            same = contents(folder / "killed-worker") == contents(folder / "reference")
            count = len(contents(folder / "reference"))
            print(f"{count} files, one worker killed on the way: identical {same}", flush=True)
            times: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
            for turn in range(arguments.rounds):
                order = list(arms) if turn % 2 == 0 else list(arms)[::-1]
                for arm in order:
                    times[arm].append(extract(f"{arm}-{turn}", arms[arm], Opener()))
                    assert contents(folder / f"{arm}-{turn}") == contents(folder / "reference")
        for arm, found in times.items():
            for kind, k in (("clock", 0), ("processor", 1)):
                base = [seconds[k] for seconds in times["one process"]]
                mine = [seconds[k] for seconds in found]
                ratios = [one / other for one, other in zip(mine, base, strict=True)]
                print(
                    f"{arm}, {kind}: {statistics.median(mine):.1f} s, "
                    f"ratio {statistics.median(ratios):.2f} "
                    f"({min(ratios):.2f} to {max(ratios):.2f})"
                )


if __name__ == "__main__":
    main()
