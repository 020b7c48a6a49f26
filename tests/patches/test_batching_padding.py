"""Padding of images with different numbers of patches."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from ips.patches import pad


@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    shape=st.sampled_from([(), (3,), (2, 4, 4)]),
    dtype=st.sampled_from([torch.uint8, torch.int64, torch.float32, torch.float64]),
)
def test_rows_are_kept_and_the_rest_is_zero_and_masked(
    counts: list[int], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    rows = [torch.full((n, *shape), 1 + i).to(dtype) for i, n in enumerate(counts)]
    padded, mask = pad(rows)
    assert padded.shape == (len(counts), max(counts), *shape)
    assert padded.dtype == dtype
    assert mask.sum(dim=1).tolist() == counts
    for place, there, row in zip(padded, mask, rows, strict=True):
        assert there[: len(row)].all()
        assert torch.equal(place[there], row)
        assert not place[~there].any()
