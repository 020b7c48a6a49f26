"""Benchmark of a whole training step against the baseline."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor

from ips.bench.baseline import PaperIPS
from ips.bench.cases import megapixel_mnist_case, train_step, update_weights
from ips.bench.comparison import compare_arms, table_rows
from ips.bench.figures import ratio_bars
from ips.bench.report import Report
from ips.bench.timing import Log, ignore, pick_device


def bench_step(
    *,
    rounds: int = 3,
    batch: int = 16,
    device: torch.device | str | None = None,
    quick: bool = False,
    log: Log = ignore,
) -> Report:
    """Measure selection, forward, backward and AdamW on megapixel MNIST at 1,500 px.

    The arms start from the same weights and see the same batch. After the first update their
    weights differ by rounding, so the selections are compared at the untimed first step.

    Args:
        rounds, device, quick, log: see `bench_selection`.
        batch: number of images in a step.
    """
    device = pick_device(device)
    log("megapixel-mnist: preparing")
    case = megapixel_mnist_case(batch=batch, device=device, quick=quick)
    paper = PaperIPS(case.net)
    floats = paper.load(case.sources)
    seeds = {"baseline": count(), "ours": count()}
    optimizers = {
        arm: torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.1)
        for arm, module in (("baseline", paper), ("ours", case.net))
    }

    def baseline() -> Tensor:
        seed = next(seeds["baseline"])
        paper.train()
        torch.manual_seed(seed)
        kept = paper.select(floats, seed=seed)
        update_weights(optimizers["baseline"], paper(kept), case.labels)
        return kept.indices

    def ours() -> Tensor:
        seed = next(seeds["ours"])
        return train_step(case.net, optimizers["ours"], case.sources, case.labels, seed=seed)

    arms: dict[str, Callable[[], Tensor]] = {"baseline": baseline, "ours": ours}
    result = compare_arms(
        case.name, case.settings, arms, case.sources, rounds=rounds, device=device, log=log
    )
    return Report(
        name="step",
        data={"rounds": rounds, "cases": [result]},
        device=device,
        quick=quick,
        header=("arm", "median s", "times the baseline's speed"),
        rows=[row[1:4] for row in table_rows(result)],
        notes=[f"first step: {result['agreement']['ours']}"],
        figure=ratio_bars([result], title="Training step: speed relative to the baseline"),
    )
