"""Whether two arms selected the same patches, and if not, what differs.

Letters: B images, M patches kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ips.patches import PatchSource


@dataclass(frozen=True)
class Agreement:
    """Of two selections from the same images.

    Attributes:
        images: how many.
        equal: of them, those with the same set of patches.
        patches: kept in all.
        different: of them, those that the other selection has not.
        twins: of these, those in whose place the other has a patch of the very same content.
    """

    images: int
    equal: int
    patches: int
    different: int
    twins: int

    def __str__(self) -> str:
        if self.equal == self.images:
            return f"the same {self.patches:,} patches, {self.equal} of {self.images} images equal"
        return (
            f"same set in {self.equal} of {self.images} images; {self.different} of "
            f"{self.patches:,} patches differ, {self.twins} of them only in place"
        )


def compare(first: Tensor, second: Tensor, sources: Sequence[PatchSource]) -> Agreement:
    """Patch numbers ``(B, M)`` against ``(B, M)``, without regard to their order."""
    different = equal = twins = 0
    for a, b, source in zip(first.tolist(), second.tolist(), sources, strict=True):
        ours, theirs = sorted(set(a) - set(b)), sorted(set(b) - set(a))
        equal += not ours and not theirs
        different += len(ours)
        if ours and theirs:
            there = [bytes(patch.numpy()) for patch in source.read(theirs).cpu()]
            for patch in source.read(ours).cpu():
                if (content := bytes(patch.numpy())) in there:
                    there.remove(content)
                    twins += 1
    return Agreement(
        images=len(sources),
        equal=equal,
        patches=first.numel(),
        different=different,
        twins=twins,
    )
