"""Measure what docs/scaling.md starts from: reading of patches, and memory of the list of slides.

    python benchmarks/per_slide.py slide.tif tissue

Both are processor time and memory of this process, with one thread.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from ips.slides.coords import Resolution, slide_patches
from ips.work import Place

BLOCK = 64
SLIDES = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slide", type=Path)
    parser.add_argument("coords", type=Path, help="folder of `ips slides tissue`")
    arguments = parser.parse_args()
    source = slide_patches(arguments.slide, resolution=Resolution(256), coords=arguments.coords)
    begin = time.process_time()
    for first in range(0, len(source), BLOCK):
        source.read(range(first, min(first + BLOCK, len(source))))
    seconds = time.process_time() - begin
    print(f"{len(source)} patches read, {len(source) / seconds:.0f} per second")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slides = {f"slide_{i:07d}": Path(f"/data/slides/slide_{i:07d}.svs") for i in range(SLIDES)}
    todo = {name: (name, path) for name, path in Place().share(slides).items()}
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{len(todo):,} slides: {(after - before) / 1e3:.0f} MB")


if __name__ == "__main__":
    main()
