"""Reading a whole file does not keep it in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tifffile

SIDE = 8192  # 201 MB of RGB
BLOCK = 512

# In a separate process, because memory of other tests would be counted too.
READ_THROUGH = """
import mmap, sys
from pathlib import Path
import numpy as np
from ips.images import open_image
from ips.patches import ImagePatches

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

path, block = sys.argv[1], int(sys.argv[2])
image = open_image(path)
patches = ImagePatches(image, patch_size=block)
for read in (
    lambda i: image.read_region(patches.coords[i], 0, (block, block)),
    lambda i: patches.read([i]),
):
    assert read(0).max() == 0
    before = most = resident()
    for i in range(len(patches)):
        assert read(i).max() == 0
        most = max(most, resident())
    print(most - before)
    image.close()
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux what is resident")
@pytest.mark.parametrize("kind", ["npy", "tif"])
def test_a_mapped_file_does_not_stay_in_memory(tmp_path: Path, kind: str) -> None:
    shape, path = (SIDE, SIDE, 3), tmp_path / f"a.{kind}"
    if kind == "npy":  # neither is written: a hole in the file reads as zeros
        np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape).flush()
    else:
        tifffile.memmap(path, shape=shape, dtype=np.uint8, photometric="rgb").flush()
    done = subprocess.run(
        [sys.executable, "-c", READ_THROUGH, str(path), str(BLOCK)],
        capture_output=True,
        text=True,
        check=True,
    )
    grown = [int(line) for line in done.stdout.split()]  # by regions, by patches
    assert max(grown) < 0.2 * SIDE * SIDE * 3
