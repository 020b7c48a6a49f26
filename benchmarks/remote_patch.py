"""Count the bytes that are transferred for one patch of a slide over http, on loopback.

python benchmarks/remote_patch.py                # 16,384 px, uncompressed tiles: 0.8 GB
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import tifffile

from ips.images import open_image
from tests.range_server import range_server

TILE = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=16_384)
    side = parser.parse_args().side
    with TemporaryDirectory() as name:
        path = Path(name) / "slide.tif"
        rng = np.random.default_rng(0)
        tiles = (rng.bytes(TILE * TILE * 3) for _ in range((side // TILE) ** 2))
        tifffile.imwrite(
            path,
            (np.frombuffer(tile, np.uint8).reshape(TILE, TILE, 3) for tile in tiles),
            shape=(side, side, 3),
            dtype="uint8",
            photometric="rgb",
            tile=(TILE, TILE),
        )
        with range_server(path.parent) as server:
            with open_image(server.url(path.name)) as remote, open_image(path) as here:
                region = (side // 2, side // 3), 0, (TILE, TILE)
                same = np.array_equal(remote.read_region(*region), here.read_region(*region))
            size = path.stat().st_size
            print(
                f"{server.sent / 1e6:.2f} MB of {size / 1e6:.0f} MB ({server.sent / size:.2%}), "
                f"same pixels: {same}"
            )


if __name__ == "__main__":
    main()
