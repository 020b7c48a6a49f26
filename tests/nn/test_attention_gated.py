"""Gated attention against its formula, for aggregation and for selection."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ips import selection
from ips.nn import GatedAttention

B, M, D, T, HIDDEN = 3, 6, 10, 2, 4


def gated() -> GatedAttention:
    return GatedAttention(D, tokens=T, hidden=HIDDEN).double()


def formula(model: GatedAttention, x: Tensor, task: int) -> Tensor:
    """f(x) = w^T (tanh(U x) * sigmoid(V x)) with the layer of this task alone."""
    rows = slice(task * HIDDEN, (task + 1) * HIDDEN)
    U, u = model.U.weight[rows], model.U.bias[rows]
    V, v = model.V.weight[rows], model.V.bias[rows]
    return model.w[task] @ (torch.tanh(U @ x + u) * torch.sigmoid(V @ x + v))


def test_gated_attention_is_its_formula() -> None:
    model = gated()
    x = torch.randn(B, M, D, dtype=torch.float64)
    mask = torch.arange(M) < torch.tensor([[M], [4], [1]])
    got = model(x, mask)
    assert got.attention.shape == (B, T, 1, M)
    for b in range(B):
        X = x[b][mask[b]]
        for t in range(T):
            a = torch.stack([formula(model, X_m, t) for X_m in X]).softmax(dim=0)
            z = sum(a_m * X_m for a_m, X_m in zip(a, X, strict=True))
            torch.testing.assert_close(got.attention[b, t, 0][mask[b]], a)
            torch.testing.assert_close(got.tokens[b, t], z)


def test_its_logits_select_what_it_attends_to() -> None:
    model = gated()
    x = torch.randn(M, D, dtype=torch.float64)
    logits = model.scorer()(x)
    assert logits.shape == (M, model.channels) == (M, T)
    for t in range(T):
        expected = torch.stack([formula(model, x_m, t) for x_m in x])
        torch.testing.assert_close(logits[:, t], expected)
    chosen = selection.exact(logits, keep=3)
    attention = model(x.unsqueeze(0), torch.ones(1, M, dtype=torch.bool)).attention
    top = attention[0].mean(dim=(0, 1)).topk(3)
    assert torch.equal(chosen.indices, top.indices)
    torch.testing.assert_close(chosen.scores, top.values)


@pytest.mark.parametrize("garbage", [1e6, math.nan])
def test_a_masked_patch_is_as_if_absent(garbage: float) -> None:
    model = gated()
    x = torch.randn(2, M, D, dtype=torch.float64)
    mask = torch.arange(M) < torch.tensor([[2], [M]])
    expected = model(x, mask)
    x[~mask] = garbage
    got = model(x, mask)
    torch.testing.assert_close(got.tokens, expected.tokens, rtol=0, atol=0)
    torch.testing.assert_close(got.attention, expected.attention, rtol=0, atol=0)
