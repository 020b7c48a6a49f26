"""Draw the pictures of docs/method.md as SVG: `python docs/drawings.py`.

The scores are those of a made-up image of 8 x 6 patches; the patches kept at each step are what
`ips.selection` keeps.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import torch
from torch import Tensor

from ips import selection

COLUMNS, ROWS = 8, 6
M, I = 4, 11  # noqa: E741 - so that four steps visit all 48 patches
INK, MUTED, FRAME, KEPT, NEW, LEARN = "#222", "#666", "#bbb", "#00796b", "#fff3d6", "#c2185b"


class Drawing:
    """A drawing of a width and height in pixels, on white."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title = (width, height), title
        self.parts: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        w: float,
        h: float,
        *,
        fill: str,
        line: str = FRAME,
        wide: float = 1,
    ) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="2" fill="{fill}" '
            f'stroke="{line}" stroke-width="{wide:g}"/>'
        )

    def text(
        self, x: float, y: float, *lines: str, size: int = 14, fill: str = INK, at: str = "start"
    ) -> None:
        for number, line in enumerate(lines):
            self.parts.append(
                f'<text x="{x:g}" y="{y + number * (size + 4):g}" font-size="{size}" '
                f'fill="{fill}" text-anchor="{at}">{escape(line)}</text>'
            )

    def arrow(self, x: float, y: float, to_x: float, to_y: float, *, fill: str = MUTED) -> None:
        self.parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{fill}" '
            f'stroke-width="2" marker-end="url(#{fill[1:]})"/>'
        )

    def save(self, path: Path) -> None:
        width, height = self.size
        heads = "".join(
            f'<marker id="{fill[1:]}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
            f'markerHeight="6" orient="auto"><path d="M0 0 8 4 0 8Z" fill="{fill}"/></marker>'
            for fill in (MUTED, LEARN)
        )
        body = "\n".join(self.parts)
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="sans-serif" role="img">\n'
            f"<title>{escape(self.title)}</title>\n<defs>{heads}</defs>\n"
            f'<rect width="{width}" height="{height}" rx="6" fill="#fff"/>\n{body}\n</svg>\n',
            encoding="utf-8",
        )


def shade(score: float) -> str:
    """A darker green for a higher score between 0 and 1."""
    return f"rgb({255 - 190 * score:.0f},{255 - 80 * score:.0f},{255 - 130 * score:.0f})"


def made_up_scores() -> Tensor:
    """Scores of the patches of an image with two small objects."""
    torch.manual_seed(4)
    scores = 0.35 * torch.rand(ROWS, COLUMNS)
    for row, column, score in ((1, 5, 0.95), (1, 6, 0.75), (4, 2, 0.85), (4, 3, 0.6), (2, 5, 0.5)):
        scores[row, column] = score
    return scores.flatten()


def draw_selection(path: Path) -> None:
    """One image, the steps of the selection, and what is learned from."""
    scores, cell = made_up_scores(), 30
    count = len(scores)
    drawing = Drawing(860, 400, "Selection in steps: M patches are kept, I new ones are compared")
    chosen = selection.exact(scores[:, None], keep=M).indices.tolist()

    drawing.text(20, 32, f"1. N = {count} patches, each scored alone")
    for patch in range(count):
        x, y = 20 + patch % COLUMNS * cell, 48 + patch // COLUMNS * cell
        kept = patch in chosen
        drawing.rect(x, y, cell, cell, fill=shade(float(scores[patch])))
        drawing.text(x + 15, y + 20, str(patch), size=10, fill=MUTED, at="middle")
        if kept:
            drawing.rect(x + 1, y + 1, cell - 2, cell - 2, fill="none", line=LEARN, wide=3)
    drawing.text(20, 252, "darker: higher score", "framed: kept in the end", size=12, fill=MUTED)

    drawing.text(340, 32, f"2. Steps of I = {I} patches: keep the best M = {M}")
    order = torch.arange(count)
    kept_now: list[int] = []
    y = 48
    position, step = 0, 1
    while position < count:
        room = M + I if not kept_now else I
        fresh = order[position : position + room].tolist()
        position += room
        candidates = kept_now + fresh
        for number, patch in enumerate(candidates):
            x = 340 + number * 24
            drawing.rect(x, y, 24, 24, fill=shade(float(scores[patch])))
            drawing.text(x + 12, y + 16, str(patch), size=10, fill=MUTED, at="middle")
        table = scores[torch.tensor(candidates)][:, None]
        best = selection.exact(table, keep=M).indices.tolist()
        for number in best:
            drawing.rect(340 + number * 24 + 1, y + 1, 22, 22, fill="none", line=LEARN, wide=2.5)
        if kept_now:
            drawing.text(340, y + 38, "kept so far", size=11, fill=MUTED)
            drawing.text(340 + 24 * M + 4, y + 38, f"new in step {step}", size=11, fill=MUTED)
        else:
            drawing.text(340, y + 38, f"step {step}: the first M + I", size=11, fill=MUTED)
        kept_now = [candidates[number] for number in best]
        y, step = y + 52, step + 1
    assert sorted(kept_now) == sorted(chosen)

    drawing.text(20, 318, "3. Learn from the M patches alone, with gradients")
    for number, patch in enumerate(kept_now):
        drawing.rect(20 + number * 40, 334, 36, 36, fill=shade(float(scores[patch])), line=LEARN)
        drawing.text(38 + number * 40, 357, str(patch), size=11, at="middle")
    drawing.arrow(190, 352, 236, 352, fill=LEARN)
    for x, words in ((244, "encoder"), (374, "attention"), (504, "prediction"), (634, "loss")):
        drawing.rect(x, 334, 96, 36, fill="#fce4ec", line=LEARN)
        drawing.text(x + 48, 357, words, at="middle")
        if x < 600:
            drawing.arrow(x + 98, 352, x + 126, 352, fill=LEARN)
    drawing.save(path)


def draw_memory(path: Path) -> None:
    """What is in memory while an image is scored, and while the network learns."""
    drawing = Drawing(860, 330, "Memory of a step: a micro-batch, then M patches")
    drawing.text(20, 32, "Pass 1, without gradients: every patch, a micro-batch at a time")
    for number in range(40):
        inside = 14 <= number < 20
        drawing.rect(20 + number * 20, 46, 20, 20, fill=NEW if inside else "#f4f4f4")
    drawing.rect(20 + 14 * 20, 44, 120, 24, fill="none", line=KEPT, wide=3)
    drawing.text(20, 84, "N patches, on disk", size=12, fill=MUTED)
    drawing.text(360, 84, "micro-batch: the only pixels in memory", size=12, fill=KEPT, at="middle")
    drawing.arrow(360, 90, 360, 114)
    drawing.rect(290, 118, 140, 32, fill="#e0f2f1", line=KEPT)
    drawing.text(360, 139, "encoder, scorer", at="middle")
    drawing.arrow(432, 134, 492, 134)
    for number in range(40):
        done = number < 20
        drawing.rect(500 + number * 8, 124, 8, 20, fill="#b2dfdb" if done else "#fafafa")
    drawing.text(500, 162, "logits: some bytes per patch, all that is kept", size=12, fill=MUTED)

    drawing.text(20, 210, "Pass 2, with gradients: the M best patches")
    for number in range(6):
        drawing.rect(20 + number * 24, 226, 22, 22, fill="#b2dfdb", line=LEARN)
    drawing.arrow(172, 237, 206, 237, fill=LEARN)
    for x, words in ((212, "encoder"), (332, "attention"), (452, "loss")):
        drawing.rect(x, 220, 90, 34, fill="#fce4ec", line=LEARN)
        drawing.text(x + 45, 242, words, at="middle")
        if x < 400:
            drawing.arrow(x + 92, 232, x + 116, 232, fill=LEARN)
            drawing.arrow(x + 116, 244, x + 92, 244)
    drawing.text(560, 232, "activations of M patches are", "the peak of memory: it grows", size=12)
    drawing.text(560, 264, "with M, not with the image", size=12)
    words = "A network on the whole image, or on all patches, holds activations of all N here."
    drawing.text(20, 304, words, size=12, fill=MUTED)
    drawing.save(path)


def draw_refresh(path: Path) -> None:
    """Which patches an epoch scores again."""
    drawing = Drawing(860, 230, "select.refresh: which patches an epoch scores again")
    drawing.text(
        20, 32, "The N patches of an image, in the order of their scores of earlier epochs"
    )
    parts = (
        (90, "#00796b", "M", "selected last"),
        (170, "#4db6ac", "3 M", "next best"),
    )
    x = 20
    for width, fill, number, words in parts:
        drawing.rect(x, 46, width, 40, fill=fill)
        drawing.text(x + width / 2, 71, number, fill="#fff", at="middle")
        drawing.text(x, 104, words, size=12, fill=MUTED)
        x += width
    drawing.rect(x, 46, 840 - x, 40, fill="#f4f4f4")
    for stripe in range(24):
        fill = "#ffb74d" if stripe % 2 else "#9575cd"
        drawing.rect(x + 10 + stripe * 23, 46, 7, 40, fill=fill, line=fill)
    words = "5 % not scored for longest, 5 % at random; the rest keep"
    drawing.text(x + 30, 104, words, "their old scores and cannot be selected", size=12, fill=MUTED)
    drawing.arrow(300, 128, 300, 152)
    drawing.rect(180, 156, 240, 36, fill="#e0f2f1", line=KEPT)
    drawing.text(300, 179, "scored now by the encoder", at="middle")
    drawing.arrow(424, 174, 474, 174)
    drawing.rect(480, 156, 200, 36, fill="#fce4ec", line=LEARN)
    drawing.text(580, 179, "best M are selected", at="middle")
    words = "Audit: 3 % of the images are scored in full, to measure what the shortlist misses."
    drawing.text(20, 218, words, size=12)
    drawing.save(path)


def draw_screen(path: Path) -> None:
    """How predictions skip patches with a coarse view."""
    drawing = Drawing(860, 250, "select.screen: a coarse view decides which patches are scored")
    boxes = (
        (20, "every patch", "as 32 x 32 px"),
        (190, "3 convolutions", "25,000 weights"),
        (360, "predicted logits", "of all N patches"),
        (530, "shortlist", "best 4 M or more"),
        (700, "full encoder", "scores these"),
    )
    for x, words, more in boxes:
        drawing.rect(x, 50, 140, 54, fill="#e0f2f1", line=KEPT)
        drawing.text(x + 70, 73, words, at="middle")
        drawing.text(x + 70, 92, more, size=12, fill=MUTED, at="middle")
        if x < 700:
            drawing.arrow(x + 142, 77, x + 168, 77)
    drawing.text(20, 32, "Scoring with a screen")
    drawing.rect(530, 122, 140, 30, fill="#fff3d6")
    drawing.text(600, 142, "+ 2 % at random", size=12, at="middle")
    drawing.arrow(672, 137, 720, 108)
    drawing.arrow(770, 106, 770, 170)
    drawing.text(760, 190, "Do the random ones show", "that much attention is missed?", at="end")
    drawing.rect(790, 172, 50, 30, fill="#fce4ec", line=LEARN)
    drawing.text(815, 192, "no", at="middle")
    drawing.text(815, 222, "predict", size=12, fill=MUTED, at="middle")
    drawing.arrow(532, 192, 430, 192)
    drawing.rect(180, 174, 244, 36, fill="#fff3d6")
    drawing.text(302, 197, "yes: score all N patches", at="middle")
    drawing.save(path)


def main() -> None:
    """Draw all pictures beside this file."""
    folder = Path(__file__).parent
    draw_selection(folder / "method-selection.svg")
    draw_memory(folder / "method-memory.svg")
    draw_refresh(folder / "method-refresh.svg")
    draw_screen(folder / "method-screen.svg")


if __name__ == "__main__":
    main()
