"""Kill jobs at random moments, repeat them until they end, and compare with an undisturbed one.

``python -m fuzz.kill --kills 50`` kills `ips train`, also with ``--folds 5``, `ips pretrain` and
`ips slides features` with SIGKILL, 50 times in all. Trainings save their state at every step, so
most kills are within an epoch. The jobs ``train two`` and ``pretrain two`` have two processes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fuzz.jobs import (
    FEATURES,
    FOLDS,
    PRETRAIN,
    PRETRAIN_TWO,
    TRAIN,
    TRAIN_TWO,
    Job,
    choose,
    differences,
    digest,
    environment,
    make_inputs,
)

JOBS = (TRAIN, TRAIN_TWO, FOLDS, PRETRAIN, PRETRAIN_TWO, FEATURES)


def main() -> int:
    """Run the command; exits with 1 if a job did not end as the undisturbed one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50, help="Number of SIGKILLs over all jobs")
    parser.add_argument("--per-run", type=int, default=5, help="Number of SIGKILLs per run")
    parser.add_argument("--seed", type=int, default=0, help="Random seed of the moments")
    parser.add_argument("--job", action="append", default=[], help="Job to kill; all by default")
    parser.add_argument("--folder", type=Path, help="Working folder; a temporary one by default")
    options = parser.parse_args()
    jobs = choose(JOBS, options.job)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        home = options.folder or Path(temporary)
        make_inputs(home, run=False)
        whole = {job.name: undisturbed(job, home) for job in jobs}
        done, faults, number = 0, 0, 0
        while done < options.kills:
            job = jobs[number % len(jobs)]
            seconds, expected = whole[job.name]
            start = time.monotonic()
            count = min(options.per_run, options.kills - done)
            out = home / f"{job.name.replace(' ', '-')}-{number}"
            moments = [rng.uniform(0, seconds) for _ in range(count)]
            killed, problem = disturbed(job, home, out, moments, expected)
            if not killed:  # the machine was slower before
                whole[job.name] = min(seconds, time.monotonic() - start), expected
            done += killed
            faults += problem is not None
            print(f"{job.name}: {killed} kills, {problem or 'identical'}", flush=True)
            number += 1
    print(f"{done} kills, {number} runs, {faults} faults", flush=True)
    return int(faults > 0)


def undisturbed(job: Job, home: Path) -> tuple[float, dict[str, str]]:
    """Seconds and digest of a job that nothing disturbs."""
    out, start = home / f"{job.name.replace(' ', '-')}-whole", time.monotonic()
    again = out.exists()
    subprocess.run(
        job.command(home, out, again=again),
        check=True,
        env=environment(home),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return time.monotonic() - start, digest(out)


def disturbed(
    job: Job, home: Path, out: Path, moments: list[float], expected: dict[str, str]
) -> tuple[int, str | None]:
    """Kill a job at each moment, in seconds after its start, and repeat it until it ends.

    Returns:
        The number of kills, and what is wrong with the end, if anything is.
    """
    killed = 0
    for seconds in [*moments, None]:
        process = subprocess.Popen(
            job.command(home, out, again=out.exists()),
            env=environment(home),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # its workers are killed with it
        )
        try:
            _, text = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            killed += 1
            continue
        if process.returncode:
            return killed, f"exit code {process.returncode}: {text.strip().splitlines()[-1:]}"
        if seconds is not None:  # it ended before the moment came
            break
    changed = differences(digest(out), expected)
    return killed, f"other files: {', '.join(changed)}" if changed else None


if __name__ == "__main__":
    sys.exit(main())
