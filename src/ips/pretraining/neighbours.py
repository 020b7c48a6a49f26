"""A picture of what an encoder holds for alike: patches, and beside each its nearest ones.

Letters: q patches asked about, k nearest of each, b patches of a chunk, D embedding size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from ips.nn import evaluating
from ips.pretraining.patches import Reader

_CHUNK = 64
# In inches: of a patch, between it and its neighbours, from one to the next, from row to row.
_SIDE, _GAP, _STEP, _ROW = 1.25, 0.25, 1.32, 1.5
_INK, _MUTED, _RULE = "#1f2933", "#6b7280", "#d5d9de"


@dataclass(frozen=True)
class Neighbours:
    """Numbers of patches.

    Args:
        queries: ``(q,)``.
        nearest: ``(q, k)``, the most similar first.
        similarity: ``(q, k)``, cosines.
    """

    queries: Tensor
    nearest: Tensor
    similarity: Tensor


def find_neighbours(
    encoder: nn.Module,
    reader: Reader,
    *,
    queries: int = 8,
    nearest: int = 6,
    progress: Callable[[int], None] = lambda done: None,
) -> Neighbours:
    """The most similar among the other patches of ``reader``, of which a chunk is in memory.

    The patches asked about lie evenly over those of the reader, which come in random order; one
    that was read twice, in the place of blank ones, counts once. ``progress`` is told how many have
    been looked at.
    """
    count = len(reader)
    asked = torch.arange(min(queries, count)) * count // min(queries, count)  # (q,)
    wanted = _features(encoder, reader, asked)  # (q, D)
    own = torch.from_numpy(reader.draws[asked])  # (q, 2), known once they are read
    best = torch.empty((len(asked), 0))
    found = torch.empty((len(asked), 0), dtype=torch.int64)
    seen: set[tuple[int, ...]] = set()
    for start in range(0, count, _CHUNK):
        numbers = torch.arange(start, min(start + _CHUNK, count))  # (b,)
        cosines = wanted @ _features(encoder, reader, numbers).T  # (q, b)
        places = torch.from_numpy(reader.draws[numbers])  # (b, 2)
        cosines[(own[:, None] == places).all(dim=2)] = -torch.inf
        cosines[:, _repeated(places, seen)] = -torch.inf
        both = torch.cat([best, cosines], dim=1)
        best, order = both.topk(min(nearest, both.shape[1]), dim=1)  # (q, k)
        found = torch.cat([found, numbers.expand(len(asked), -1)], dim=1).gather(1, order)
        progress(start + len(numbers))
    k = min(nearest, len(seen) - 1)
    return Neighbours(asked, found[:, :k], best[:, :k])


def _repeated(places: Tensor, seen: set[tuple[int, ...]]) -> Tensor:
    """Which of ``(b, 2)`` have been seen, ``(b,)``; from now on all of them have."""
    flags = []
    for place in map(tuple, places.tolist()):
        flags.append(place in seen)
        seen.add(place)
    return torch.tensor(flags)


def _features(encoder: nn.Module, reader: Reader, numbers: Tensor) -> Tensor:
    device = next(encoder.parameters()).device
    pixels = reader.read(numbers.tolist()).to(device).float() / 255
    with evaluating(encoder):
        return F.normalize(encoder(pixels), dim=1).cpu()  # (b, D)


def draw_neighbours(path: Path, neighbours: Neighbours, reader: Reader) -> None:
    """A row for each patch asked about, under each neighbour its cosine and its file."""
    q, k = neighbours.nearest.shape
    width, height = _SIDE + _GAP + k * _STEP + 0.2, q * _ROW + 0.4
    figure = Figure(figsize=(width, height), dpi=150, facecolor="white")
    page = figure.add_axes((0, 0, 1, 1))  # in inches from the top left
    page.set_axis_off()

    def place(x: float, y: float, number: int, cosine: str, **frame: Any) -> None:
        pixels = reader.read([number])[0].permute(1, 2, 0).numpy()  # (h, w, C)
        page.imshow(
            pixels if pixels.shape[2] == 3 else pixels[..., 0],
            cmap="gray",
            vmin=0,
            vmax=255,
            extent=(x, x + _SIDE, y + _SIDE, y),
        )
        page.add_patch(Rectangle((x, y), _SIDE, _SIDE, fill=False, **frame))
        name = _shortened(reader.slides[int(reader.draws[number, 0])].path.stem, 16)
        style: dict[str, Any] = {"size": 6, "color": _MUTED, "va": "top", "parse_math": False}
        page.text(x, y + _SIDE + 0.05, f"{cosine}{name}", **style)

    for row, asked in enumerate(neighbours.queries.tolist()):
        y = 0.3 + row * _ROW
        place(0.1, y, asked, "", ec=_INK, lw=2)
        found = zip(neighbours.nearest[row], neighbours.similarity[row], strict=True)
        for column, (number, cosine) in enumerate(found):
            x = 0.1 + _SIDE + _GAP + column * _STEP
            place(x, y, int(number), f"{float(cosine):.3f}  ", ec=_RULE, lw=0.8)
    title: dict[str, Any] = {"size": 9, "weight": "bold", "color": _INK, "va": "bottom"}
    page.text(0.1, 0.24, "patch", **title)
    page.text(0.1 + _SIDE + _GAP, 0.24, f"most similar of {len(reader) - 1:,}", **title)
    page.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    figure.savefig(partial, format="png")
    partial.replace(path)


def _shortened(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
