"""Benchmarks of the select step and of a whole training step against the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ips.bench.baseline import PaperIPS
from ips.bench.cases import dense_case, ips_forward, megapixel_mnist_case, training_step
from ips.bench.comparison import compare_arms, compare_select_step, table_rows
from ips.bench.features import compare_on_features
from ips.bench.figures import ratio_bars
from ips.bench.report import Report, report_name
from ips.bench.timing import Log, ignore
from ips.devices import pick_device

CASES = ("megapixel-mnist", "dense", "features")


def bench_selection(
    cases: Sequence[str] = CASES,
    *,
    rounds: int = 3,
    batch: int | None = None,
    device: torch.device | str | None = None,
    quick: bool = False,
    log: Log = ignore,
) -> Report:
    """Measure the select step in each case.

    Args:
        cases: names from ``CASES``.
        rounds: number of timed runs of every arm.
        batch: number of images, 16 by default as in the paper. The case ``features`` has one bag.
        device: ``cpu``, ``cuda`` or ``mps``; by default see `ips.devices.pick_device`.
        quick: use tiny images and models, to test the benchmark itself; the times mean nothing.
        log: callback that receives a line of text after every run.
    """
    batch, device = batch or (2 if quick else 16), pick_device(device)
    results = []
    for name in cases:
        log(f"{name}: preparing")
        if name == "features":
            result = compare_on_features(rounds=3 * rounds, device=device, quick=quick, log=log)
        else:
            build = dense_case if name == "dense" else megapixel_mnist_case
            case = build(batch=batch, device=device, quick=quick)
            result = compare_select_step(case, rounds=rounds, device=device, log=log)
        results.append(result)
    return Report(
        name=report_name("selection", cases, of=CASES),
        data={"rounds": rounds, "cases": results},
        device=device,
        quick=quick,
        header=("case", "arm", "median s", "speed relative to the baseline", "patches selected"),
        rows=[row for result in results for row in table_rows(result)],
        notes=[note for result in results for note in result.get("notes", [])],
        figure=ratio_bars(results, title="Selection: speed relative to the baseline"),
    )


def bench_step(
    *,
    rounds: int = 3,
    batch: int = 16,
    device: torch.device | str | None = None,
    quick: bool = False,
    log: Log = ignore,
) -> Report:
    """Measure a training step on megapixel MNIST at 1,500 px: selection, forward, backward, AdamW.

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
    patches = paper.load(case.sources)

    def baseline(seed: int) -> tuple[Tensor, Mapping[str, Tensor]]:
        kept = paper.select(patches, seed=seed)
        return kept.indices, paper(kept)

    arms = {
        "baseline": training_step(paper, baseline, case.labels),
        "ours": training_step(case.net, ips_forward(case.net, case.sources), case.labels),
    }
    result = compare_arms(
        case.name, case.settings, arms, case.sources, rounds=rounds, device=device, log=log
    )
    return Report(
        name="step",
        data={"rounds": rounds, "cases": [result]},
        device=device,
        quick=quick,
        header=("arm", "median s", "speed relative to the baseline"),
        rows=[row[1:4] for row in table_rows(result)],
        notes=[f"first step: {result['agreement']['ours']}"],
        figure=ratio_bars([result], title="Training step: speed relative to the baseline"),
    )
