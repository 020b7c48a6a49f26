"""Compare the arms of a benchmark: their times, and the patches that they select.

Letters: B images, M patches kept.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ips.bench.baseline import PaperIPS
from ips.bench.cases import Case
from ips.bench.timing import Log, run_alternating
from ips.nn import embedding
from ips.patches import PatchSource


@dataclass(frozen=True)
class Agreement:
    """Agreement of two selections from the same images.

    Attributes:
        equal: number of images with the same set of selected patches.
        patches: number of selected patches in all images.
        different: number of them that the other selection does not have.
        same_content: number of these whose pixels equal those of a patch in the other selection.
    """

    images: int
    equal: int
    patches: int
    different: int
    same_content: int

    def __str__(self) -> str:
        if self.equal == self.images:
            return f"the same {self.patches:,} patches, {self.equal} of {self.images} images equal"
        return (
            f"same set in {self.equal} of {self.images} images; {self.different} of "
            f"{self.patches:,} patches differ, {self.same_content} of them only in position"
        )


def compare_selections(first: Tensor, second: Tensor, sources: Sequence[PatchSource]) -> Agreement:
    """Compare patch indices ``(B, M)`` with ``(B, M)``, regardless of their order."""
    different = equal = same_content = 0
    for a, b, source in zip(first.tolist(), second.tolist(), sources, strict=True):
        only_a, only_b = sorted(set(a) - set(b)), sorted(set(b) - set(a))
        equal += not only_a and not only_b
        different += len(only_a)
        if only_a and only_b:
            contents_a, contents_b = (
                Counter(pixels.numpy().tobytes() for pixels in source.read(only).cpu())
                for only in (only_a, only_b)
            )
            same_content += (contents_a & contents_b).total()
    return Agreement(len(sources), equal, first.numel(), different, same_content)


def compare_arms(
    case: str,
    settings: Mapping[str, Any],
    arms: Mapping[str, Callable[[], Tensor]],
    sources: Sequence[PatchSource],
    *,
    rounds: int,
    device: torch.device,
    log: Log,
) -> dict[str, Any]:
    """Compare the arm ``baseline`` with the other arms: their times and their selections.

    Each arm returns the indices ``(B, M)`` of the patches that it selects from ``sources``.
    """
    timings = run_alternating(arms, rounds=rounds, device=device, log=log)
    selected = timings.results
    others = [arm for arm in arms if arm != "baseline"]
    return {
        "case": case,
        "settings": settings,
        "seconds": timings.seconds,
        "vram": timings.vram,
        "ratios": {arm: timings.ratio(arm, to="baseline") for arm in others},
        "agreement": {
            arm: compare_selections(selected["baseline"], selected[arm], sources) for arm in others
        },
    }


def compare_select_step(
    case: Case, *, rounds: int, device: torch.device, log: Log
) -> dict[str, Any]:
    """Compare the select step with that of the baseline."""
    paper = PaperIPS(case.net)
    batch = paper.load(case.sources)  # loading is not timed, as in Appendix D.7

    def ours() -> Tensor:
        return case.net.select(case.sources, load=case.load, seed=0).selection.indices

    def without_reuse() -> Tensor:
        with embed_every_patch():
            return ours()

    arms = {"baseline": lambda: paper.select(batch, seed=0).indices, "ours": ours}
    if case.name == "megapixel-mnist":  # has many equal patches
        arms["ours, without embed-once"] = without_reuse
    return compare_arms(
        case.name, case.settings, arms, case.sources, rounds=rounds, device=device, log=log
    )


def embed_every_patch() -> AbstractContextManager[object]:
    """Turn off embed-once: within this context, equal patches are embedded repeatedly."""
    return patch.object(embedding, "PROBE", 0)


def table_rows(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Case, arm, median seconds, ratio and agreement for every arm of `compare_arms`."""
    return [
        (
            result["case"],
            arm,
            f"{statistics.median(seconds):.3f}",
            str(result["ratios"].get(arm, 1)),
            str(result["agreement"].get(arm, "")),
        )
        for arm, seconds in result["seconds"].items()
    ]
