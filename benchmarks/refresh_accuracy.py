"""Accuracy and time of trainings that score some patches again, beside those that score all.

    python benchmarks/refresh_accuracy.py road-signs --out runs/refresh --seeds 5
    python benchmarks/refresh_accuracy.py road-signs --out runs/less --set select.refresh=0.05

Each seed is trained twice at the same time, with one thread each: with `select.refresh: 0.1`, and
with 1. Further settings (--set) are for both, except `select.refresh`. The same command continues
after an interruption. OUT/refresh.csv has a line for every epoch, OUT/refresh.md the
scores of every seed on the test images, and OUT/refresh.png the validation scores against time.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure
from scipy.stats import t as student

_SHARE = "select.refresh="
_COLOURS = {"all patches": "tab:grey", "some again": "tab:blue"}


@dataclass(frozen=True)
class Run:
    """A finished training.

    Attributes:
        test: test scores by task.
        minutes: since the beginning of the first epoch, by epoch.
        validation: mean validation score of the tasks, by epoch; nan without validation images.
        scored: share of the patches that were scored, by epoch.
        recall, recall_attention: recall of the audit, of patches and of their attention, by epoch;
            nan in epochs without one.
    """

    arm: str
    seed: int
    test: dict[str, float]
    minutes: list[float]
    validation: list[float]
    scored: list[float]
    recall: list[float]
    recall_attention: list[float]


def train(recipe: str, folder: Path, seed: int, settings: Sequence[str]) -> None:
    """Train both arms of a seed, side by side."""
    shares = [setting for setting in settings if setting.startswith(_SHARE)] or [f"{_SHARE}0.1"]
    common = [setting for setting in settings if not setting.startswith(_SHARE)]
    processes = []
    for arm, share in (("all patches", f"{_SHARE}1"), ("some again", shares[-1])):
        run = run_folder(folder, arm, seed)
        command = [sys.executable, "-m", "ips", "train", recipe, "--run", str(run), "--resume"]
        for setting in (*common, share, f"train.seed={seed}"):
            command += ["--set", setting]
        with run.with_suffix(".log").open("a") as log:
            processes.append(
                subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | {"OMP_NUM_THREADS": "1"},
                )
            )
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"a training has failed: see the logs in {folder}")


def run_folder(folder: Path, arm: str, seed: int) -> Path:
    return folder / f"{arm.replace(' ', '-')}-{seed}"


def read(folder: Path, arm: str, seed: int) -> Run:
    """The figures of a finished training."""
    run = run_folder(folder, arm, seed)
    test = json.loads((run / "test.json").read_text())
    with (run / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> list[float]:
        return [float(row.get(name) or math.nan) for row in rows]

    tasks = [f"validation_{task}" for task in test]
    seconds, minutes = 0.0, []
    for spent in column("seconds"):
        seconds += spent
        minutes.append(seconds / 60)
    return Run(
        arm,
        seed,
        {task: math.nan if (s := found["score"]) is None else s for task, found in test.items()},
        minutes,
        [statistics.fmean(scores) for scores in zip(*map(column, tasks), strict=True)],
        [1.0 if math.isnan(share) else share for share in column("scored")],
        column("recall"),
        column("recall_attention"),
    )


def write_epochs(runs: Sequence[Run], target: Path) -> None:
    """Write a line for every epoch."""
    with target.open("w", newline="") as file:
        writer = csv.writer(file)
        names = ("minutes", "validation", "scored", "recall", "recall_attention")
        writer.writerow(["arm", "seed", "epoch", *names])
        for run in runs:
            columns = zip(*(getattr(run, name) for name in names), strict=True)
            for epoch, values in enumerate(columns, start=1):
                writer.writerow([run.arm, run.seed, epoch, *(f"{value:.5g}" for value in values)])


def table(pairs: Sequence[tuple[Run, Run]]) -> str:
    """A Markdown table with a line for every seed, and the paired differences of the scores."""
    tasks = list(pairs[0][0].test)
    lines = [
        ["seed", *(f"{task}, {arm}" for task in tasks for arm in _COLOURS), "minutes", "", "ratio"],
        ["---"] * (4 + 2 * len(tasks)),
    ]
    for whole, some in pairs:
        scores = [f"{run.test[task]:.3f}" for task in tasks for run in (whole, some)]
        times = [whole.minutes[-1], some.minutes[-1]]
        ratio = f"{times[0] / times[1]:.1f}"
        lines.append([str(whole.seed), *scores, *(f"{minutes:.1f}" for minutes in times), ratio])
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    for task in tasks:
        differences = [some.test[task] - whole.test[task] for whole, some in pairs]
        text += f"\n{task}: some again minus all patches: {_mean(differences)}\n"
    return text


def _mean(values: Sequence[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:+.4f}"
    half = student.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def draw(runs: Sequence[Run], target: Path) -> None:
    """Draw the validation score against time, a line for each training, and the recall."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    score, recall = figure.subplots(1, 2)
    for run in runs:
        style = {"lw": 1.3, "alpha": 0.8, "color": _COLOURS[run.arm]}
        score.plot(run.minutes, run.validation, **style)
        if run.arm != "all patches":
            epochs = range(1, len(run.recall) + 1)
            recall.plot(epochs, run.recall_attention, **style)
            recall.plot(epochs, run.recall, **style, linestyle=":")
    for arm, colour in _COLOURS.items():
        score.plot([], [], color=colour, label=arm)
    score.legend(frameon=False, loc="lower right")
    score.set(xlabel="minutes", ylabel="validation score")
    for line, label in (("-", "of the attention"), (":", "of the patches")):
        recall.plot([], [], color=_COLOURS["some again"], linestyle=line, label=label)
    recall.legend(frameon=False, loc="lower right")
    recall.set(xlabel="epoch", ylabel="recall of the audit", ylim=(0, 1.05))
    for axes in (score, recall):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(target, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", help="name of a recipe, or a YAML file")
    parser.add_argument("--out", type=Path, required=True, help="folder for trainings and results")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds")
    parser.add_argument("--set", action="append", default=[], help="a setting, as in ips train")
    options = parser.parse_args()
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    pairs: list[tuple[Run, Run]] = []
    for seed in range(options.seeds):
        train(options.recipe, folder, seed, options.set)
        whole, some = (read(folder, arm, seed) for arm in _COLOURS)
        pairs.append((whole, some))
        runs = [run for pair in pairs for run in pair]
        write_epochs(runs, folder / "refresh.csv")
        (folder / "refresh.md").write_text(table(pairs), encoding="utf-8")
        draw(runs, folder / "refresh.png")
        print((folder / "refresh.md").read_text(encoding="utf-8"), flush=True)


if __name__ == "__main__":
    main()
