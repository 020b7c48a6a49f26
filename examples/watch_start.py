"""What happens in the first steps of trainings that begin, and of those that do not.

    python examples/watch_start.py road-signs --out starts/roads --seeds 3 --set patches.stride=50
    python examples/watch_start.py road-signs --out starts/published --seeds 3 \\
        --set patches.stride=50 --set train.start=attention --set train.restarts=0

Trains a recipe or a config once per seed, and notes every 10 steps in OUT/seed-N.csv:

- loss: of the tasks, as a share of the loss of the best constant answer (1: nothing learnt)
- kept: share of the images with objects of which a selected patch is on one
- top: the same for the patch with the highest attention
- random: what M random patches would be expected to keep
- evenness: entropy of the attention over the selected patches, 1 if all are equal
- encoder: norm of the gradient of the encoder
- embedding: mean norm of the embeddings

OUT/starts.csv has a line for each seed: the epoch in which it began (see docs/starting.md), and its
scores on the validation and test images in the end. OUT/starts.png draws all seeds. The data set
must know where its objects are. A finished seed is skipped, so several processes can train
different seeds (--first 0 --seeds 5, --first 5 --seeds 5).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from matplotlib.figure import Figure
from rich.console import Console
from torch import Tensor, nn

from ips.config import Config
from ips.config_io import parse_config
from ips.data.regions import patches_on
from ips.files import write_text
from ips.models import SelectingNet
from ips.patches import PatchSource
from ips.recipes import read_recipe
from ips.selection import Selection
from ips.training import RunFolder, build_data, evaluate, train
from ips.training.data import DataSet, set_epoch
from ips.training.losses import constant_loss
from ips.training.module import Learner
from ips.training.objects import objects_of

EVERY = 10
COLUMNS = {
    "loss": "loss, as a share of a constant answer's",
    "kept": "images with an object among the patches kept",
    "top": "images whose top patch is on an object",
    "evenness": "evenness of attention",
    "encoder": "gradient of the encoder",
    "embedding": "norm of embeddings",
}
_SHARES = ("kept", "top", "evenness")  # drawn from 0 to 1


class Numbered:
    """A data set that remembers the number of each image by its name."""

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self.number: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]:
        source, labels = self.data[index]
        self.number[source.name] = index
        return source, labels

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.data, epoch)


class Watch(Callback):
    """Notes what the docstring above lists, in every tenth step."""

    def __init__(self, data: Numbered, path: Path) -> None:
        self._data, self._path = data, path
        self._chosen: tuple[Sequence[PatchSource], Selection] | None = None
        self._attention = self._x = torch.empty(0)
        self.rows: list[dict[str, float]] = []
        self.validation: dict[str, float] = {}

    def on_train_start(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        assert isinstance(learner, Learner)
        net = learner.net
        assert isinstance(net, SelectingNet)
        ordinary = net.select_for_training

        def select(sources: Sequence[PatchSource], **options: Any) -> Any:
            chosen = ordinary(sources, **options)
            self._chosen = sources, chosen.selection
            return chosen

        def aggregate(_: nn.Module, inputs: tuple[Tensor, Tensor], found: Any) -> None:
            self._x, self._attention = inputs[0].detach(), found.attention.detach()

        net.select_for_training = select  # type: ignore[method-assign]
        net.get_submodule("aggregator").register_forward_hook(aggregate)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, learner: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if trainer.global_step % EVERY:
            return
        assert isinstance(learner, Learner)
        losses = torch.stack(learner.tally.task_losses[-EVERY:])[:, 0].mean()
        chance = constant_loss(learner.tasks, learner.tally.answers)
        gradients = [w.grad.norm() for w in learner.net.encoder.parameters() if w.grad is not None]
        row = {"step": trainer.global_step, "led": float(learner.lead_chooses)}
        row["loss"] = float(losses / chance)
        row |= self._places(learner.net.tasks)
        a = self._attention.mean(dim=(1, 2))  # (B, K)
        entropy = -torch.xlogy(a, a).sum(dim=1) / math.log(a.shape[1])
        row["evenness"] = float(entropy.mean())
        row["encoder"] = float(torch.stack(gradients).norm())
        row["embedding"] = float(self._x.norm(dim=-1).mean())
        self.rows.append(row)

    def _places(self, tasks: Sequence[str]) -> dict[str, float]:
        assert self._chosen is not None
        sources, selection = self._chosen
        found = []
        for b, source in enumerate(sources):
            number = self._data.number[source.name]
            regions = [r for task in tasks for r in objects_of(self._data.data, number, task) or []]
            side = source.extent or source.parts[0].patch_side
            on = [patches_on(region, source.coords, extent=side) for region in regions]
            if not on:
                continue
            hits = np.zeros(len(source), bool)
            hits[np.concatenate(on)] = True
            mask = selection.mask[b]
            kept = selection.indices[b][mask].cpu().numpy()
            top = kept[int(self._attention[b].mean(dim=(0, 1))[mask].argmax())]
            missed = range(len(source) - int(hits.sum()))
            lost = math.prod((len(missed) - k) / (len(source) - k) for k in range(len(kept)))
            found.append((hits[kept].any(), hits[top], 1 - max(lost, 0)))
        means = np.mean(found, axis=0) if found else [math.nan] * 3
        return dict(zip(("kept", "top", "random"), map(float, means), strict=True))

    def on_train_end(self, trainer: L.Trainer, learner: L.LightningModule) -> None:
        assert isinstance(learner, Learner)
        self.validation = learner.validation_scores()
        with self._path.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)


def watch(config: Config, path: Path, console: Console) -> None:
    """Train and test as `ips train` does, and write what was noted to ``path``."""
    run = RunFolder(path.with_suffix(""))
    shutil.rmtree(run.path, ignore_errors=True)  # of a killed run, whose notes are lost
    data = build_data(config)
    images = Numbered(data.train)
    data = replace(data, train=images)
    notes = Watch(images, path)
    model = train(config, run.path, console=console, data=data, callbacks=[notes])
    start = json.loads(run.start.read_text())
    row = {"seed": config.train.seed, "begun": start["begun"], "starts": len(start["starts"])}
    row |= {f"validation_{task}": score for task, score in notes.validation.items()}
    tested = evaluate(run.path, model=model, data=data, console=console)
    row |= {f"test_{task}": result.scores[0].value for task, result in tested.results.items()}
    write_text(path.with_suffix(".json"), json.dumps(row))


def summarise(folder: Path) -> list[Path]:
    """Write ``starts.csv`` about all finished seeds of a folder; return the notes of each."""
    rows = [json.loads(path.read_text()) for path in folder.glob("seed-*.json")]
    rows.sort(key=lambda row: int(row["seed"]))
    with (folder / "starts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return [folder / f"seed-{row['seed']}.csv" for row in rows]


def draw(paths: Sequence[Path], target: Path) -> None:
    """Draw a panel for each column and a line for each seed, coloured by whether it has begun."""
    begun = [
        json.loads(path.with_suffix(".json").read_text())["begun"] is not None for path in paths
    ]
    figure = Figure(figsize=(10, 5), layout="constrained")
    for axes, (column, title) in zip(figure.subplots(2, 3).flat, COLUMNS.items(), strict=True):
        for path, has_begun in zip(paths, begun, strict=True):
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            steps = [int(row["step"]) for row in rows]
            values = [float(row[column]) for row in rows]
            colour = "tab:blue" if has_begun else "tab:red"
            axes.plot(steps, _smooth(values), lw=1, alpha=0.8, color=colour)
            if column == "kept":
                axes.axhline(np.mean([float(row["random"]) for row in rows]), color="grey", ls=":")
        axes.set_title(title, size=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0, top=1.05 if column in _SHARES else None)
    counts = {"tab:blue": ("begun", sum(begun)), "tab:red": ("not begun", len(begun) - sum(begun))}
    for colour, (text, count) in counts.items():
        figure.axes[0].plot([], [], color=colour, label=f"{text}: {count} of {len(begun)}")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("step", size=9)
    figure.savefig(target, dpi=150)


def _smooth(values: Sequence[float], width: int = 5) -> list[float]:
    """Means over the last few values, without those that are undefined."""
    parts = [np.array(values[max(0, i - width + 1) : i + 1]) for i in range(len(values))]
    return [float(part[~np.isnan(part)].mean()) if (~np.isnan(part)).any() else 0 for part in parts]


def main() -> None:
    """Train every seed, and draw them all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", help="name of a recipe, or a YAML file")
    parser.add_argument("--out", type=Path, required=True, help="folder for tables and the figure")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--set", action="append", default=[], help="a setting, as in ips train")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in range(options.first, options.first + options.seeds):
        path = options.out / f"seed-{seed}.csv"
        if not path.with_suffix(".json").is_file():
            settings = [*options.set, f"train.seed={seed}"]
            values = read_recipe(options.recipe, settings=settings)
            watch(parse_config(values, source=options.recipe), path, Console(file=sys.stderr))
    draw(summarise(options.out), options.out / "starts.png")


if __name__ == "__main__":
    main()
