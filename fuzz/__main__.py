"""The command: corrupt files of every family, read them, and print what became of them."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from fuzz.child import OUTCOMES, Job, Outcome, Verdict, expected_reading, run
from fuzz.families import all_families
from fuzz.family import Family, Reading, Variant
from ips.files import write_text
from ips.progress import progress_bar

SEEDS = Path(__file__).parent / "seeds"
_BATCH = 25  # files that one child reads
_MAX_STORED = 8192  # bytes of a stored file

Failures = dict[tuple[str, str], tuple[Job, int, Verdict]]
"""By family and place, the job, the number and the verdict of the first file that failed so."""


def main() -> int:
    """Run the command; exits with 1 if a file failed."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    console = Console(stderr=True)
    families = _chosen(all_families(), options.families)
    expected = _expected(families)
    jobs = list(_jobs(families, options))
    total = sum(len(job.numbers) for job in jobs)
    counts = {family.name: Counter[Outcome]() for family in families}
    seconds = dict.fromkeys(counts, 0.0)
    failures: Failures = {}
    start = time.monotonic()
    with progress_bar(console) as bar:
        line = bar.add_task("files", total=total, note="")
        last = time.monotonic()
        for job, number, verdict in run(iter(jobs), expected, parallel=options.jobs):
            family = job.family
            counts[family.name][verdict.outcome] += 1
            seconds[family.name] += time.monotonic() - last
            last = time.monotonic()
            if _failed(family, verdict):
                key = family.name, f"{verdict.outcome} {verdict.place}"
                failures.setdefault(key, (job, number, verdict))
            bar.update(line, advance=1, note=f"{family.name}, {len(failures)} faults")
    text = _markdown(families, counts)
    took = time.monotonic() - start
    print(f"{text}\n{total:,} files in {took:.0f} s, {len(failures)} different faults")
    for (name, _), (_, number, verdict) in failures.items():
        print(f"{name} {number}: {verdict.outcome}: {verdict.detail} [{verdict.place}]")
    if not options.no_store:
        _store(failures)
    if options.out is not None:
        _write_report(options.out, counts, failures, seconds, text)
    return 1 if failures else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=100, help="number of corrupted files per family")
    add("--families", default="", help="names of families, separated by commas; default: all")
    add("--seed", type=int, default=0, help="random seed of the corruption")
    add(
        "--first", type=int, default=0, help="number of the first file, to repeat or continue a run"
    )
    add("--jobs", type=int, default=1, help="number of processes that read files at a time")
    add(
        "--stored", action="store_true", help="also read the files in fuzz/seeds, which once failed"
    )
    add("--no-store", action="store_true", help="do not store the files that fail in fuzz/seeds")
    add("--out", type=Path, help="folder for report.md and report.json")
    return parser


def _chosen(families: Sequence[Family], names: str) -> list[Family]:
    known = {family.name: family for family in families}
    wanted = [name for name in names.split(",") if name] or list(known)
    if unknown := [name for name in wanted if name not in known]:
        sys.exit(f"no family {', '.join(unknown)}: the families are {', '.join(known)}")
    return [known[name] for name in wanted]


def _expected(families: Sequence[Family]) -> dict[tuple[str, str], Reading]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        return {
            (family.name, seed.name): expected_reading(seed, Path(folder) / "valid")
            for family in families
            for seed in family.seeds
        }


def _jobs(families: Sequence[Family], options: argparse.Namespace) -> Iterator[Job]:
    for family in families:
        if options.stored:
            stored = _stored(family)
            if stored:
                yield Job(family, range(len(stored)), stored.__getitem__)
        numbers = range(options.first, options.first + options.count)
        make = partial(family.variant, seed=options.seed)
        for start in range(0, len(numbers), _BATCH):
            yield Job(family, numbers[start : start + _BATCH], make)


def _stored(family: Family) -> list[Variant]:
    """The stored files of a family; their names begin with that of their seed."""
    return [
        Variant(
            family.seed(path.name.partition("@")[0]),
            gzip.decompress(path.read_bytes()),
            edited=True,
        )
        for path in sorted((SEEDS / family.name).glob("*.gz"))
    ]


def _failed(family: Family, verdict: Verdict) -> bool:
    explained = {"values": family.values, "geometry": family.geometry, "other": family.edits}
    bad = verdict.outcome in ("traceback", "crash", "hang")
    return bad or explained.get(verdict.outcome) == ""


def _markdown(families: Sequence[Family], counts: dict[str, Counter[Outcome]]) -> str:
    """A table of all families, and why some files were read as something else."""
    header = ["family", "files", *OUTCOMES.values()]
    rows = [
        [name, str(count.total()), *(str(count[outcome]) for outcome in OUTCOMES)]
        for name, count in counts.items()
    ]
    total = sum(counts.values(), Counter[Outcome]())
    rows.append(["all", str(total.total()), *(str(total[outcome]) for outcome in OUTCOMES)])
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    for family in families:
        reasons: tuple[tuple[Outcome, str], ...] = (
            ("values", family.values),
            ("geometry", family.geometry),
        )
        for what, reason in reasons:
            if reason and counts[family.name][what]:
                text += f"\n{family.name}, {what}: {reason}."
    return text


def _store(failures: Failures) -> None:
    """Keep the files that failed, one for each fault, as long as they are small."""
    for (name, place), (job, number, _) in failures.items():
        variant = job.make(number)
        key = hashlib.sha256(place.encode()).hexdigest()[:8]
        path = SEEDS / name / f"{variant.seed.name}@{key}.gz"
        packed = gzip.compress(variant.data, mtime=0)
        if len(packed) <= _MAX_STORED and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed)


def _write_report(
    out: Path,
    counts: dict[str, Counter[Outcome]],
    failures: Failures,
    seconds: dict[str, float],
    text: str,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    faults = [
        {"family": name, "number": number} | vars(verdict)
        for (name, _), (_, number, verdict) in failures.items()
    ]
    report = {"families": counts, "seconds": seconds, "faults": faults}
    write_text(out / "report.json", json.dumps(report, indent=2) + "\n")
    write_text(out / "report.md", text + "\n")


if __name__ == "__main__":
    sys.exit(main())
