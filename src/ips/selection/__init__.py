"""Choose M of N patches from a table of score logits: pure functions of tensors.

Examples:
    >>> import torch
    >>> from ips import selection
    >>> logits = torch.tensor([[0.1], [2.0], [-1.0], [3.0]])  # N = 4 patches, S = 1 channel
    >>> selection.iterative(logits, keep=2, chunk=1).indices.tolist()
    [3, 1]
"""

from ips.selection.choose import MODES, Mode, Selection, exact, iterative, random, scores, shuffled
from ips.selection.perturbed import perturbed_top_k
from ips.selection.shortlist import Recall, estimated_recall, recall, shortlist

__all__ = [
    "MODES",
    "Mode",
    "Recall",
    "Selection",
    "estimated_recall",
    "exact",
    "iterative",
    "perturbed_top_k",
    "random",
    "recall",
    "scores",
    "shortlist",
    "shuffled",
]
