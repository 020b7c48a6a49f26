"""Benchmark of the select step: speed against the baseline, and agreement with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ips.bench.baseline import PaperIPS
from ips.bench.cases import Case, dense_case, megapixel_mnist_case
from ips.bench.comparison import compare_arms, table_rows
from ips.bench.features import compare_on_features
from ips.bench.figures import ratio_bars
from ips.bench.report import Report, report_name
from ips.bench.timing import Log, ignore, pick_device
from ips.nn import embedding

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
        device: ``cpu`` or ``cuda``; the GPU by default, if there is one.
        quick: use tiny images and models to try the benchmark; the times mean nothing.
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
            result = _compare(case, rounds=rounds, device=device, log=log)
        results.append(result)
    return Report(
        name=report_name("selection", cases, of=CASES),
        data={"rounds": rounds, "cases": results},
        device=device,
        quick=quick,
        header=("case", "arm", "median s", "times the baseline's speed", "patches selected"),
        rows=[row for result in results for row in table_rows(result)],
        notes=[note for result in results for note in result.get("notes", [])],
        figure=ratio_bars(results, title="Selection: speed relative to the baseline"),
    )


def _compare(case: Case, *, rounds: int, device: torch.device, log: Log) -> dict[str, Any]:
    paper = PaperIPS(case.net)
    batch = paper.load(case.sources)  # loading is not timed, as in Appendix D.7

    def ours() -> Tensor:
        return case.net.select(case.sources, seed=0).selection.indices

    def without_reuse() -> Tensor:
        with embed_every_patch():
            return ours()

    arms: dict[str, Callable[[], Tensor]] = {
        "baseline": lambda: paper.select(batch, seed=0).indices,
        "ours": ours,
    }
    if case.name == "megapixel-mnist":  # where many patches are equal
        arms["ours, without embed-once"] = without_reuse
    return compare_arms(
        case.name, case.settings, arms, case.sources, rounds=rounds, device=device, log=log
    )


class _EveryPatch(embedding.EmbeddingPass):
    def __call__(self, patches: Tensor) -> Tensor:
        return self._encode(patches)


@contextmanager
def embed_every_patch() -> Iterator[None]:
    """Embed equal patches again and again, to measure selection without embed-once."""
    with patch.object(embedding, "EmbeddingPass", _EveryPatch):
        yield
