"""The features of `ips experiment slide-dose` through ABMIL of torchmil, as a check from outside.

    ips experiment slide-dose --part scores --out runs/slide-dose
    pip install --no-deps torchmil tensordict torch_geometric einops pandas orjson pyvers \
        cloudpickle importlib_metadata zipp python-dateutil six    # none of them is used by ips
    python benchmarks/torchmil_dose.py runs/slide-dose/data

For each task, gated ABMIL is trained with the loss of ips: Huber, or Cox's partial likelihood, for
as many epochs. The index of the true area (the oracle) shows how well any model can rank the noisy
survival times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torchmil.models import ABMIL

from ips.data.table import read_table
from ips.patches import open_features
from ips.statistics import r_squared_value
from ips.survival import concordance
from ips.tasks import Cox, Regression

LABELS = ("area", "months", "event")
Split = tuple[list[Tensor], Tensor]  # features (N, D) of each slide, labels (n, 3)


def read(folder: Path) -> dict[str, Split]:
    """Features and labels of each split."""
    rows = read_table(folder / "features.csv", tasks=LABELS)
    found: dict[str, Split] = {}
    for split in ("train", "validation", "test"):
        part = [row for row in rows if row.split == split]
        bags = []
        for row in part:
            source = open_features(row.path)
            bags.append(torch.as_tensor(source.read(range(len(source)))).float())
        labels = [[float(row.labels[name]) for name in LABELS] for row in part]
        found[split] = bags, torch.tensor(labels)
    return found


def padded(bags: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Features ``(B, N, D)`` and their mask ``(B, N)``."""
    features = nn.utils.rnn.pad_sequence(bags, batch_first=True)
    lengths = torch.tensor([len(bag) for bag in bags])
    return features, torch.arange(features.shape[1])[None] < lengths[:, None]


def train(
    data: dict[str, Split], task: str, *, seed: int, epochs: int, lr: float
) -> tuple[float, float]:
    """Scores on validation and test slides after the last epoch."""
    torch.manual_seed(seed)
    bags, labels = data["train"]
    every = torch.cat(bags)
    mean, deviation = every.mean(dim=0), every.std(dim=0) + 1e-6
    dim = every.shape[1]
    scale = nn.Sequential(nn.Linear(dim, 64), nn.ReLU())
    model = ABMIL(in_shape=(dim,), gated=True, feat_ext=scale)
    area = labels[:, 0]
    task_of = {"area": Regression(float(area.mean()), float(area.std())), "months": Cox()}[task]
    target = labels[:, 0] if task == "area" else labels[:, 1:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)

    def answers(split: str) -> np.ndarray:
        with torch.no_grad():
            logits = [model(((bag - mean) / deviation)[None]) for bag in data[split][0]]
        return task_of.activation(torch.stack(logits)).double().numpy()[:, 0]

    def score(split: str) -> float:
        truth = data[split][1].double().numpy()
        if task == "area":
            return r_squared_value(answers(split), truth[:, 0])
        return concordance(answers(split), truth[:, 1:]).value

    for _ in range(epochs):
        for numbers in torch.randperm(len(bags)).split(16):
            features, mask = padded([(bags[i] - mean) / deviation for i in numbers])
            loss = task_of.loss(model(features, mask)[:, None], target[numbers])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return score("validation"), score("test")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder `data` of the experiment")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--lr", type=float, default=0.001)
    options = parser.parse_args()
    data = read(options.folder)
    truth = data["test"][1].double().numpy()
    print(f"oracle: concordance index {concordance(truth[:, 0], truth[:, 1:]).value:.3f}")
    for task, name in (("area", "R²"), ("months", "concordance index")):
        found = [
            train(data, task, seed=seed, epochs=options.epochs, lr=options.lr)
            for seed in range(options.seeds)
        ]
        for split, values in zip(("validation", "test"), zip(*found, strict=True), strict=True):
            texts = ", ".join(f"{value:.3f}" for value in values)
            print(f"{task}, {name}, {split} slides: {texts}, mean {np.mean(values):.3f}")


if __name__ == "__main__":
    main()
