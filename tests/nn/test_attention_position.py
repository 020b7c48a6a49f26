"""The position encoding against the formula of Vaswani et al."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ips.nn import sinusoidal_position


def textbook(position: int, dim: int) -> list[float]:
    waves = []
    for i in range(0, dim, 2):
        angle = position / 10_000 ** (i / dim)
        waves += [math.sin(angle), math.cos(angle)]
    return waves[:dim]


@given(position=st.integers(0, 5_000), dim=st.integers(1, 64))
def test_encoding_is_the_textbook_formula(position: int, dim: int) -> None:
    got = sinusoidal_position(torch.tensor(position), dim)
    # An angle of thousands in float32 is good to about its last bit, 2**-11.
    assert got.tolist() == pytest.approx(textbook(position, dim), abs=1e-3)


@pytest.mark.parametrize("position", [1_000_000, 10_000_000, 2**24 + 1])
def test_indices_are_not_limited(position: int) -> None:
    got = sinusoidal_position(torch.tensor(position), 16)
    assert got.tolist() == pytest.approx(textbook(position, 16), abs=1e-3)


def test_neighbouring_indices_differ_even_if_large() -> None:
    here, there = sinusoidal_position(torch.tensor([2**24, 2**24 + 1]), 16)
    assert not torch.allclose(here, there, atol=1e-2)


def test_indices_of_any_shape_gain_one_dimension() -> None:
    index = torch.randint(1_000, (2, 3))
    encoded = sinusoidal_position(index, 8)
    assert encoded.shape == (2, 3, 8)
    torch.testing.assert_close(encoded[1, 2], sinusoidal_position(index[1, 2], 8))
