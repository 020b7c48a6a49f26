"""How the time of a training step and its memory grow with the side of an image.

    python benchmarks/growth.py                        # sides 1, 2, 3.2 and 4 times as long
    python benchmarks/growth.py --sides 1 3.2 --steps 1

The images of `refresh_step.py` from 600 x 450 px on, with `select.refresh` and with all patches, in
turn. Seconds are those of the processor, so other programs matter little. Memory is the peak of a
process of its own for each side.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
from multiprocessing.connection import Connection

from refresh_step import Measured, measure, with_audit

_WIDTH, _HEIGHT = 600, 450
_KEEP = 10


def _measure(side: float, share: float, steps: int, answer: Connection) -> None:
    found = measure(
        round(side * _WIDTH),
        round(side * _HEIGHT),
        keep=_KEEP,
        share=share,
        batch=1,
        steps=steps,
        load="lazy",
    )
    answer.send((found, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def in_new_process(side: float, share: float, steps: int) -> tuple[Measured, float]:
    """Measure one side; return the peak memory in MB, too."""
    context = multiprocessing.get_context("spawn")
    answer, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(side, share, steps, sender))
    process.start()
    sender.close()
    found: tuple[Measured, float] = answer.recv()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sides", type=float, nargs="+", default=[1, 2, 3.2, 4])
    parser.add_argument("--share", type=float, default=0.03, help="select.refresh")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    rows = []
    for side in options.sides:
        found, memory = in_new_process(side, options.share, options.steps)
        one, other = (arm[1] for arm in found.seconds)
        rows.append((side, found.patches, one, other, with_audit(one, other), memory))
    print("| side | N | all patches | some again | with the audit | peak memory |")
    print("| --- | --- | --- | --- | --- | --- |")
    first = rows[0]
    for side, patches, *seconds, memory in rows:
        times = [f"{s:.2f} s ({s / s0:.1f})" for s, s0 in zip(seconds, first[2:5], strict=True)]
        print(f"| {side:g} | {patches:,} | {' | '.join(times)} | {memory:,.0f} MB |")


if __name__ == "__main__":
    main()
