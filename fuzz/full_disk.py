"""Let the disk be full at every kind of write of a job, repeat the job, and compare its end.

``python -m fuzz.full_disk`` runs each job once undisturbed. For every size of file that it wrote,
it runs the job again with a limit just below that size, which fails as a full disk does. With
``--tmpfs``, it runs the jobs on small disks in memory instead, which takes the right to mount them.

A job must end with one sentence that names one of its own files or folders, and leave nothing
half-written; without the limit, it must then end as the undisturbed one.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from fuzz.jobs import (
    EXPLAIN,
    FEATURES,
    PRETRAIN,
    REPORT,
    TISSUE,
    TRAIN,
    Job,
    choose,
    differences,
    digest,
    environment,
    make_inputs,
)

JOBS = (TRAIN, PRETRAIN, TISSUE, FEATURES, EXPLAIN, REPORT)


def main() -> int:
    """Run the command; exits with 1 if a job did not fail or end as it must."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", action="append", default=[], help="Job to run; all by default")
    parser.add_argument("--tmpfs", action="store_true", help="Use small disks in memory")
    parser.add_argument("--limits", type=int, default=100, help="Limits per job, at most")
    parser.add_argument("--folder", type=Path, help="Working folder; a temporary one by default")
    options = parser.parse_args()
    jobs = choose(JOBS, options.job)
    faults = cases = 0
    with tempfile.TemporaryDirectory() as temporary:
        home = options.folder or Path(temporary)
        make_inputs(home, run=any(job in (EXPLAIN, REPORT) for job in jobs))
        for job in jobs:
            whole = home / "whole" / job.name.replace(" ", "-")
            run(job, home, whole)
            expected = digest(whole)
            sizes = {path.stat().st_size: path for path in whole.rglob("*") if path.is_file()}
            for number, limit in enumerate(_limits(sizes, options.limits, options.tmpfs)):
                out = home / f"{job.name.replace(' ', '-')}-{number}" / "out"
                with _small_disk(out.parent, limit) if options.tmpfs else nullcontext():
                    problem = case(job, home, out, limit, expected, tmpfs=options.tmpfs)
                cases, faults = cases + 1, faults + (problem is not None)
                name = sizes[limit + 1].name if limit + 1 in sizes else ""
                print(f"{job.name}, {limit:,} bytes {name}: {problem or 'good'}", flush=True)
    print(f"{cases} cases, {faults} faults", flush=True)
    return int(faults > 0)


def case(
    job: Job, home: Path, out: Path, limit: int, expected: dict[str, str], *, tmpfs: bool
) -> str | None:
    """Run a job with a full disk, then without; returns what is wrong, if anything is."""
    first = run(job, home, out, limit=None if tmpfs else limit)
    problem = check(first, out, expected)
    if problem is not None:
        return problem
    if tmpfs:
        subprocess.run(["mount", "-o", "remount,size=200m", str(out.parent)], check=True)
    second = run(job, home, out, again=out.exists())
    if second.returncode:
        return f"not resumed: {second.stderr[-500:]}"
    changed = differences(digest(out), expected)
    return f"other files: {', '.join(changed)}" if changed else None


def check(
    result: subprocess.CompletedProcess[str], out: Path, expected: dict[str, str]
) -> str | None:
    """What is wrong with the end of a job on a full disk: its sentence, or what it left."""
    sentences = [line for line in result.stderr.splitlines() if line.startswith("ips: ")]
    if result.returncode == 0:  # every write fitted
        return None
    if result.returncode != 1 or "Traceback" in result.stderr or len(sentences) != 1:
        return f"exit code {result.returncode}: {result.stderr[-1000:]}"
    names = [str(out / name) for name in expected if str(out / name) in sentences[0]]
    logs = str(out / "tensorboard"), str(out / ".lock")
    if not names and not any(name in sentences[0] for name in (*logs, f"{out}:")):
        return f"names no file of its own: {sentences[0]}"
    half = list(out.rglob("*.part"))
    empty = [path for path in out.rglob("*.yaml") if not path.stat().st_size]
    return f"left {half + empty}" if half or empty else None


def run(
    job: Job, home: Path, out: Path, *, limit: int | None = None, again: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a job, with a limit on the size of its files."""
    # Python ignores SIGXFSZ, so that a write beyond the limit is an error.
    before: Callable[[], None] | None = None
    if limit is not None:
        before = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run(
        job.command(home, out, again=again),
        env=environment(home),
        capture_output=True,
        text=True,
        preexec_fn=before,
    )


def _limits(sizes: dict[int, Path], count: int, tmpfs: bool) -> list[int]:
    """Sizes of files less one, from the smallest; or sizes of disks."""
    if tmpfs:
        total = sum(sizes)
        return [4096 * max(1, round(total * (n + 0.5) / count / 4096)) for n in range(count)]
    ordered = sorted(size - 1 for size in sizes if size > 1)
    step = max(1, -(-len(ordered) // count))
    return ordered[::step]


@contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[None]:
    """A disk in memory of ``size`` bytes, mounted at ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


if __name__ == "__main__":
    sys.exit(main())
