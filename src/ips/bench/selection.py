"""How long the select step takes, against the paper as written, and whether both agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ips import selection
from ips.bench.agreement import compare
from ips.bench.baseline import PaperIPS
from ips.bench.cases import Case, dense, megapixel_mnist
from ips.bench.figures import ratio_bars
from ips.bench.machine import facts
from ips.bench.report import Report, name_of
from ips.bench.rounds import Log, in_turns
from ips.bench.stored import stored_features
from ips.nn import embedding

CASES = ("megapixel-mnist", "dense", "features")


def bench_selection(
    cases: Sequence[str] = CASES,
    *,
    rounds: int = 3,
    batch: int | None = None,
    device: torch.device,
    quick: bool = False,
    log: Log,
) -> Report:
    """Measure the select step of each case.

    Args:
        cases: of ``CASES``.
        rounds: timed runs of every arm.
        batch: images; 16 by default, as in the paper. Features are one bag.
        device: to run on.
        quick: tiny images and models, to see that all works; the times mean nothing.
        log: callback that receives a line of text after every run.
    """
    done = []
    for name in cases:
        log(f"{name}: preparing")
        if name == "features":
            found = stored_features(rounds=3 * rounds, device=device, quick=quick, log=log)
        elif name == "dense":
            found = _measure(
                dense(batch=batch or (2 if quick else 16), device=device, quick=quick),
                rounds=rounds,
                device=device,
                log=log,
            )
        else:
            found = _measure(
                megapixel_mnist(batch=batch or (2 if quick else 16), device=device, quick=quick),
                rounds=rounds,
                device=device,
                log=log,
                apart=True,
            )
        done.append(found)
    return Report(
        name=name_of("selection", cases, CASES),
        data={"machine": facts(device), "quick": quick, "rounds": rounds, "cases": done},
        header=("case", "arm", "median s", "times the baseline's speed", "patches selected"),
        rows=[row for case in done for row in _rows(case)],
        notes=[note for case in done for note in case.get("notes", [])],
        figure=ratio_bars(done, title="Selection: speed, the paper as written = 1"),
    )


def _measure(
    case: Case, *, rounds: int, device: torch.device, log: Log, apart: bool = False
) -> dict[str, Any]:
    """Both arms on one case; ``apart``: also without embedding equal patches once."""
    paper = PaperIPS(case.net)
    batch = paper.load(case.sources)  # loading is no part of the pass, as in Appendix D.7
    order = selection.shuffled(torch.ones(batch.shape[:2], dtype=torch.bool), seed=0).to(device)

    def ours() -> Tensor:
        return case.net.select(case.sources, seed=0).selection.indices

    def each() -> Tensor:
        with every_patch():
            return ours()

    arms: dict[str, Callable[[], Tensor]] = {
        "baseline": lambda: paper.select(batch, order).indices,
        "ours": ours,
    }
    if apart:
        arms["ours, without embed-once"] = each
    taken = in_turns(arms, rounds=rounds, device=device, log=log)
    others = [arm for arm in arms if arm != "baseline"]
    return {
        "case": case.name,
        "settings": case.settings,
        "seconds": taken.seconds,
        "vram": taken.vram,
        "ratios": {arm: taken.ratio(arm, to="baseline") for arm in others},
        "agreement": {
            arm: compare(taken.first["baseline"], taken.first[arm], case.sources) for arm in others
        },
    }


class _EveryPatch(embedding.EmbeddingPass):
    """A pass that embeds each patch, whether or not it has seen its like."""

    def __call__(self, patches: Tensor) -> Tensor:
        return self._encode(patches)


@contextmanager
def every_patch() -> Iterator[None]:
    """Selection without the embed-once, to see what the rest is worth."""
    with patch.object(embedding, "EmbeddingPass", _EveryPatch):
        yield


def _rows(case: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for arm, seconds in case["seconds"].items():
        ratio, agreement = case["ratios"].get(arm, 1), case["agreement"].get(arm, "")
        rows.append((case["case"], arm, f"{median(seconds):.3f}", str(ratio), str(agreement)))
    return rows
