from __future__ import annotations

import math

import numpy as np
import pytest

from ips.data.synthetic.digits import Pixels
from ips.data.synthetic.noise import NoiseStyle, draw_noise_bank


def bank_of(style: NoiseStyle, noise: int, seed: int = 0) -> Pixels:
    return draw_noise_bank(np.random.default_rng(seed), style=style, noise=noise)


def line(slope: float) -> set[tuple[int, int]]:
    """Pixels (row, column) of a line from a corner: 56 points, until it leaves the cell."""
    end = min(27.49, 27.49 / slope)
    xs = [end * point / 55 for point in range(56)]
    return {(round(x), round(slope * x)) for x in xs}


def test_a_bank_of_lines_has_as_many_patterns_as_an_image() -> None:
    for noise in (0, 1, 50):
        bank = bank_of("lines", noise)
        assert bank.shape == (noise, 28, 28)
        assert bank.dtype == np.uint8


# All lines that the published generator can draw, at 4,000 angles up to 72 degrees.
LINES = {
    frozenset(line(math.tan(angle))) for angle in np.linspace(1e-6, math.pi / 2.5, 4000).tolist()
}


def mirrored(pixels: frozenset[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    return frozenset((row, 27 - column) for row, column in pixels)


def lines_of(cell: Pixels) -> list[tuple[frozenset[tuple[int, int]], frozenset[tuple[int, int]]]]:
    """All pairs of lines that give the pattern; the first is not mirrored."""
    ink = set(zip(*map(np.ndarray.tolist, np.nonzero(cell)), strict=True))
    first = [pixels for pixels in LINES if pixels <= ink]
    second = [pixels for pixels in LINES | set(map(mirrored, LINES)) if pixels <= ink]
    return [(a, b) for a in first for b in second if a | b == ink]


def test_every_pattern_is_two_thin_lines_from_a_corner() -> None:
    assert all(lines_of(cell) for cell in bank_of("lines", 60))


def test_the_second_line_is_the_first_of_another_pattern() -> None:
    pairs = [lines_of(cell) for cell in bank_of("lines", 40)]
    checked = 0
    for number, own in enumerate(pairs):
        # Which line is the first is certain only if the second is mirrored.
        second = {mirrored(b) for _, b in own if b not in LINES}
        others = {a for pair in pairs[:number] + pairs[number + 1 :] for a, _ in pair}
        if second:
            assert second & others
            checked += 1
    assert checked > 10


def test_some_second_lines_are_mirrored() -> None:
    bank = bank_of("lines", 2000) > 0
    # Only a mirrored line passes through the opposite corner.
    share = bank[:, 0, 27].mean()
    expected = 0.33 + 0.33 - 2 * 0.33 * 0.33
    assert share == pytest.approx(expected, abs=0.03)


def test_every_pixel_has_its_own_grey_value() -> None:
    bank = bank_of("lines", 500)
    ink = bank[bank > 0]
    assert (ink.min(), ink.max()) == (204, 254)
    assert ink.mean() == pytest.approx(229, abs=1)
    assert all(len(np.unique(cell)) > 15 for cell in bank)


def test_lines_have_the_published_amount_of_ink() -> None:
    ink = (bank_of("lines", 50) > 0).sum(axis=(1, 2))
    assert ink.mean() == pytest.approx(66, abs=10)
    # One line has 28 px, or 56 sampled points at most; two lines may coincide.
    assert ink.min() >= 28
    assert ink.max() <= 2 * 56


def test_strokes_are_thick_and_many() -> None:
    bank = bank_of("strokes", 3)
    assert bank.shape == (4096, 28, 28)
    assert not bank_of("strokes", 0).size
    ink = (bank > 0).sum(axis=(1, 2))
    assert ink.mean() > 2 * 66
    assert all(len(np.unique(cell)) <= 3 for cell in bank)  # black, and a grey for each stroke
    assert len(np.unique(bank, axis=0)) > 4000


def test_banks_depend_on_the_random_numbers_only() -> None:
    for style in ("lines", "strokes"):
        assert np.array_equal(bank_of(style, 20), bank_of(style, 20))
        assert not np.array_equal(bank_of(style, 20), bank_of(style, 20, seed=1))
