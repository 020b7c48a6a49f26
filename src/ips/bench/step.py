"""How long a whole training step takes, against the paper as written."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import torch
from torch import Tensor

from ips import selection
from ips.bench.agreement import compare
from ips.bench.baseline import PaperIPS
from ips.bench.cases import loss_of, megapixel_mnist, train_step
from ips.bench.figures import ratio_bars
from ips.bench.machine import facts
from ips.bench.report import Report
from ips.bench.rounds import Log, in_turns


def bench_step(
    *, rounds: int = 3, batch: int = 16, device: torch.device, quick: bool = False, log: Log
) -> Report:
    """Select, embed, aggregate, backwards, AdamW: megapixel MNIST at 1,500 px.

    The arms start from the same weights and see the same batch. From the first update on their
    weights differ by rounding, so what they select is compared at the untimed first step.
    """
    log("megapixel-mnist: preparing")
    case = megapixel_mnist(batch=batch, device=device, quick=quick)
    paper = PaperIPS(case.net)
    floats = paper.load(case.sources)
    present = torch.ones(floats.shape[:2], dtype=torch.bool)
    seeds = {"baseline": count(), "ours": count()}
    optimizers = {
        arm: torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=0.1)
        for arm, module in (("baseline", paper), ("ours", case.net))
    }

    def baseline() -> Tensor:
        seed = next(seeds["baseline"])
        paper.train()
        torch.manual_seed(seed)
        kept = paper.select(floats, selection.shuffled(present, seed=seed).to(device))
        loss = loss_of(paper(kept), case.labels)
        optimizers["baseline"].zero_grad()
        loss.backward()
        optimizers["baseline"].step()
        return kept.indices

    def ours() -> Tensor:
        seed = next(seeds["ours"])
        return train_step(case.net, optimizers["ours"], case.sources, case.labels, seed=seed)

    arms: dict[str, Callable[[], Tensor]] = {"baseline": baseline, "ours": ours}
    taken = in_turns(arms, rounds=rounds, device=device, log=log)
    ratio = taken.ratio("ours", to="baseline")
    agreement = compare(taken.first["baseline"], taken.first["ours"], case.sources)
    found = {
        "case": case.name,
        "settings": case.settings,
        "seconds": taken.seconds,
        "vram": taken.vram,
        "ratios": {"ours": ratio},
        "agreement": {"ours": agreement},
    }
    return Report(
        name="step",
        data={"machine": facts(device), "quick": quick, "rounds": rounds, "cases": [found]},
        header=("arm", "median s", "times the baseline's speed"),
        rows=[
            ("baseline", f"{taken.median('baseline'):.3f}", "1"),
            ("ours", f"{taken.median('ours'):.3f}", str(ratio)),
        ],
        notes=[f"first step: {agreement}"],
        figure=ratio_bars([found], title="A training step: speed, the paper as written = 1"),
    )
