"""Pan through a thousand tiles of a slide of 16 gigapixels and of a small one in the viewer.

    python benchmarks/pan_viewer.py                          # in runs/gigapixel
    python benchmarks/pan_viewer.py --side 32768             # a smaller slide, to try it

Each slide has its own server process. Both are asked for the same positions in turn, so that other
load on the machine slows down both. The script fetches tiles of the image and of random attention
(one value per 256 px), all of them entirely tissue: white tiles are faster, and the small slide has
more that are partly white. Tiles that were fetched before are cached and not counted. The first
picture is that of a server that has read nothing yet: page, list, and the whole slide at 1,024 px.
Missing files are created: the slides, and a small model. Linux only, because it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from make_gigapixel import make_scene, write_slide
from predict_gigapixel import make_model, make_parser

SMALL = 32_768
TILE = 256
FIRST = 2  # zoom of the first picture: 4 x 4 tiles, 1,024 px


class Server:
    """A viewer of one slide in its own process."""

    def __init__(self, run: Path, slide: Path) -> None:
        command = [sys.executable, __file__, "--serve", str(run), str(slide)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        address = urlsplit(self.process.stdout.readline().strip())
        self._root = address.path
        self._connection = HTTPConnection(str(address.netloc), timeout=60)
        before = self.processor_seconds()
        self.first_picture = self._open_page()
        self.first_picture_work = self.processor_seconds() - before
        while not json.loads(self.get(f"api/images/{self.id}")):
            time.sleep(0.1)
        self.zoom = self.details()["zoom"]
        self._connection.close()  # it would time out while the other server starts; it reopens

    def _open_page(self) -> float:
        """Seconds from the request of the page to the last tile of its first picture."""
        started = time.perf_counter()
        for address in ("", "api/run"):
            self.get(address)
        self.id = json.loads(self.get("api/images"))["images"][0]["id"]
        self.get(f"api/images/{self.id}")
        zoom = min(FIRST, self.details()["zoom"])
        for column in range(2**zoom):
            for row in range(2**zoom):
                self.get(f"tiles/{self.id}/0/{zoom}/{column}/{row}")
        return time.perf_counter() - started

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(f"api/images/{self.id}/0"))
        return found

    def get(self, address: str) -> bytes:
        self._connection.request("GET", self._root + address)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            sys.exit(f"{address}: {response.status} {body!r}")
        return body

    def seconds(self, address: str) -> float:
        started = time.perf_counter()
        self.get(address)
        return time.perf_counter() - started

    def processor_seconds(self) -> float:
        """Time that the server has worked so far, which does not depend on other load."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, key: str) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1e3 for line in lines if line.startswith(key))


def tissue_tiles(side: int) -> dict[int, list[tuple[int, int]]]:
    """Column and row of the tiles inside a blob of tissue, by number of levels below the finest."""
    scene = make_scene(side, levels=1, seed=0)
    found: dict[int, list[tuple[int, int]]] = {}
    for below in range(6):
        tile = TILE * 2**below
        for (x, y), radius in zip(scene.centres.tolist(), scene.radii.tolist(), strict=True):
            for column in range(int((x - radius) // tile), int((x + radius) // tile) + 1):
                for row in range(int((y - radius) // tile), int((y + radius) // tile) + 1):
                    far = [
                        abs((i + 0.5) * tile - at) + tile / 2 for i, at in ((column, x), (row, y))
                    ]
                    if np.hypot(*far) < 0.84 * radius:
                        found.setdefault(below, []).append((column, row))
    return found


def tour(sides: dict[str, int], count: int) -> Iterator[tuple[int, dict[str, tuple[int, int]]]]:
    """Tiles of both slides at the same level; starts with each tile of the small slide once."""
    rng = np.random.default_rng(0)
    tiles = {name: tissue_tiles(side) for name, side in sides.items()}
    small = [(below, at) for below, every in tiles["small"].items() for at in every]
    order = [*rng.permutation(len(small)), *rng.integers(len(small), size=count)][:count]
    for below, at in (small[i] for i in order):
        other = tiles["big"][below]
        yield below, {"small": at, "big": other[rng.integers(len(other))]}


def pan(servers: dict[str, Server], sides: dict[str, int], count: int) -> dict[str, object]:
    times: dict[tuple[str, str], list[float]] = {}
    memory: dict[str, list[float]] = {}
    fetched: set[tuple[str, str]] = set()
    for name, server in servers.items():
        for kind in ("tiles", "attention"):
            server.get(f"{kind}/{server.id}/0/0/0/0?task=0")
        memory[name] = [server.megabytes("VmHWM")]
    for step, (below, at) in enumerate(tour(sides, count)):
        for kind in ("tiles", "attention"):
            places = {
                n: f"{s.id}/0/{s.zoom - below}/{at[n][0]}/{at[n][1]}" for n, s in servers.items()
            }
            took = {n: s.seconds(f"{kind}/{places[n]}?task=0") for n, s in servers.items()}
            if not any((kind, place) in fetched for place in places.values()):
                for name in servers:
                    times.setdefault((kind, name), []).append(took[name])
            fetched |= {(kind, place) for place in places.values()}
        if step == count // 2:
            for name, server in servers.items():
                memory[name].append(server.megabytes("VmHWM"))
    for name, server in servers.items():
        memory[name].append(server.megabytes("VmHWM"))

    medians = {key: statistics.median(found) for key, found in times.items()}
    ratios = {
        kind: medians[kind, "big"] / medians[kind, "small"] for kind in ("tiles", "attention")
    }

    return {
        "seconds to the first picture": {n: round(s.first_picture, 3) for n, s in servers.items()},
        "of these, on the processor": {
            n: round(s.first_picture_work, 2) for n, s in servers.items()
        },
        "tiles of each slide": count,
        "pixels, big / small": (sides["big"] / sides["small"]) ** 2,
        "counted pairs": len(times["tiles", "big"]),
        "median time of an image tile, big / small": round(ratios["tiles"], 3),
        "median time of an attention tile, big / small": round(ratios["attention"], 3),
        "peak MB at the start, halfway and at the end": {
            n: [round(m) for m in found] for n, found in memory.items()
        },
        "peak halfway and at the end / at the start": {
            n: [round(m / start, 3) for m in later] for n, (start, *later) in memory.items()
        },
    }


def serve_slide(run: Path, slide: Path) -> None:
    """Serve the viewer with random attention: the prediction itself is not measured here."""
    from ips.explain.spread import Spread
    from ips.images import open_image
    from ips.loading import load
    from ips.viewer import Library, serve
    from ips.viewer.answers import Answer, PartAnswer, cache_name

    predictor = load(run)
    cells = max(open_image(slide).dimensions) // TILE
    rng = np.random.default_rng(0)
    answer = Answer(
        patches=cells**2,
        probabilities=[np.array([0.5], np.float32)],
        parts=[
            PartAnswer(
                image=0,
                extent=TILE,
                magnification=None,
                shares=[1.0, 1.0],
                maps=rng.random((2, cells, cells)).astype(np.float32),
                cell=float(TILE),
                offset=(0, 0),
            )
        ],
        kept=np.zeros((1, 2), np.int64),
        part_numbers=np.zeros(1, np.int64),
        attention=np.ones((2, 1), np.float32),
        ratios=np.ones((2, 1), np.float32),
        spreads=[Spread(cells**2, 0.5, 1.0)] * 2,
        classes=None,
    )
    library = Library(predictor, run, {str(slide): [str(slide)]})
    answer.save(run / "viewer" / cache_name(predictor, [slide]))
    serve(library, port=0, on_ready=lambda address: print(address, flush=True))


def main() -> None:
    parser = make_parser("Pan through a slide and measure time and memory.")
    parser.add_argument(
        "--tiles", type=int, default=1000, help="Number of tiles of each kind and slide"
    )
    parser.add_argument("--serve", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve_slide(*args.serve)
        return
    folder: Path = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    run = make_model(folder)
    sides = {"big": args.side, "small": SMALL}
    slides = {name: folder / f"slide-{side}.tif" for name, side in sides.items()}
    for name, slide in slides.items():
        if not slide.exists():
            print(f"writing {slide}", file=sys.stderr)
            write_slide(slide, side=sides[name])
    servers: dict[str, Server] = {}
    with tempfile.TemporaryDirectory() as copy:  # of the run, for the random attention
        shutil.copy(run / "model.safetensors", copy)
        try:
            for name, slide in slides.items():
                servers[name] = Server(Path(copy), slide)
            print(json.dumps(pan(servers, sides, args.tiles), indent=2))
        finally:
            for server in servers.values():
                server.process.terminate()
                server.process.wait()


if __name__ == "__main__":
    main()
