"""Nearest neighbours of patches in the embedding space of an encoder, and a figure of them.

Letters: q query patches, k neighbours of each, b patches of a chunk, D embedding size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.explain.colours import INK, MUTED, RULE, shortened
from ips.explain.figures.drawing import draw_crop
from ips.explain.figures.page import Page
from ips.nn import evaluating
from ips.pretraining.patches import Reader

_CHUNK = 64
# In inches: side of a patch, gap to its neighbours, distance of neighbours, distance of rows.
_SIDE, _GAP, _STEP, _ROW = 1.25, 0.25, 1.32, 1.5


@dataclass(frozen=True)
class Neighbours:
    """Query patches and their nearest neighbours, by number."""

    queries: Tensor  # (q,)
    nearest: Tensor  # (q, k), the most similar first
    similarity: Tensor  # (q, k) cosine similarity


def find_neighbours(
    encoder: nn.Module,
    reader: Reader,
    *,
    queries: int = 8,
    nearest: int = 6,
    progress: Callable[[int], None] = lambda done: None,
) -> Neighbours:
    """Find the most similar patches of ``reader``, with one chunk of patches in memory.

    Args:
        reader: patches in random order. A patch that replaces several blank patches counts once.
        queries: number of query patches, evenly spaced.
        nearest: maximum number of neighbours.
        progress: callback that receives the number of patches done.
    """
    count = len(reader)
    asked = torch.arange(min(queries, count)) * count // min(queries, count)  # (q,)
    wanted = _features(encoder, reader, asked)  # (q, D)
    own = torch.from_numpy(reader.draws[asked])  # (q, 2), final once they have been read
    best = torch.empty((len(asked), 0))
    found = torch.empty((len(asked), 0), dtype=torch.int64)
    seen: set[tuple[int, ...]] = set()
    for start in range(0, count, _CHUNK):
        numbers = torch.arange(start, min(start + _CHUNK, count))  # (b,)
        cosines = wanted @ _features(encoder, reader, numbers).T  # (q, b)
        draws = torch.from_numpy(reader.draws[numbers])  # (b, 2)
        cosines[(own[:, None] == draws).all(dim=2)] = -torch.inf
        cosines[:, _repeated(draws, seen)] = -torch.inf
        both = torch.cat([best, cosines], dim=1)
        best, order = both.topk(min(nearest, both.shape[1]), dim=1)  # (q, k)
        found = torch.cat([found, numbers.expand(len(asked), -1)], dim=1).gather(1, order)
        progress(start + len(numbers))
    k = min(nearest, len(seen) - 1)
    return Neighbours(asked, found[:, :k], best[:, :k])


def _repeated(draws: Tensor, seen: set[tuple[int, ...]]) -> Tensor:
    """Whether each of ``(b, 2)`` is in ``seen``, ``(b,)``; adds all of them."""
    flags = []
    for draw in map(tuple, draws.tolist()):
        flags.append(draw in seen)
        seen.add(draw)
    return torch.tensor(flags)


def _features(encoder: nn.Module, reader: Reader, numbers: Tensor) -> Tensor:
    device = next(encoder.parameters()).device
    pixels = reader.read(numbers.tolist()).to(device).float() / 255
    with evaluating(encoder):
        return F.normalize(encoder(pixels), dim=1).cpu()  # (b, D)


def draw_neighbours(path: Path, neighbours: Neighbours, reader: Reader) -> None:
    """Draw a PNG with a row for each query, and similarity and file name below each neighbour."""
    q, k = neighbours.nearest.shape
    slides, left = reader.collection.slides, 0.1 + _SIDE + _GAP
    page = Page(left + k * _STEP + 0.1, q * _ROW + 0.4)

    def draw(x: float, y: float, number: int, label: str, colour: str, line: float) -> None:
        patch = reader.read([number])[0].numpy()  # (C, h, w)
        draw_crop(page, x, y, side=_SIDE, patch=patch, colour=colour, line=line)
        name = shortened(slides[int(reader.draws[number, 0])].path.stem, 16)
        page.write(x, y + _SIDE + 0.05, label + name, size=6, color=MUTED)

    for row, asked in enumerate(neighbours.queries.tolist()):
        y = 0.3 + row * _ROW
        draw(0.1, y, asked, "", INK, 2)
        found = zip(neighbours.nearest[row], neighbours.similarity[row], strict=True)
        for column, (number, cosine) in enumerate(found):
            draw(left + column * _STEP, y, int(number), f"{float(cosine):.3f}  ", RULE, 0.8)
    for x, text in ((0.1, "patch"), (left, f"most similar of {len(reader) - 1:,}")):
        page.write(x, 0.24, text, size=9, weight="bold", va="bottom")
    page.save(path)
