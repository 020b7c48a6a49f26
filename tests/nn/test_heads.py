"""Heads, and the patch-level head of Sect. 4.5."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from ips.errors import ConfigError
from ips.nn import Head, PatchReadout

B, M, D, T, H, C = 2, 5, 6, 3, 2, 4


def readout() -> PatchReadout:
    return PatchReadout(Head(D, C, activation=torch.sigmoid), task="multi", token=1)


def test_head_is_one_linear_layer_by_default() -> None:
    single = Head(D, C, activation=torch.sigmoid)
    deep = Head(D, C, activation=torch.sigmoid, hidden=(8, 7))
    assert [type(layer) for layer in single] == [nn.Linear]
    sizes = [tuple(layer.weight.shape) for layer in deep if isinstance(layer, nn.Linear)]
    assert sizes == [(8, D), (7, 8), (C, 7)]
    assert [type(layer) for layer in deep][1::2] == [nn.ReLU, nn.ReLU]


def test_head_emits_logits_and_knows_its_activation() -> None:
    head = Head(D, C, activation=torch.sigmoid)
    x = torch.randn(B, D)
    (linear,) = head
    assert isinstance(linear, nn.Linear)
    torch.testing.assert_close(head(x), x @ linear.weight.T + linear.bias)
    assert head.activation is torch.sigmoid


def test_readout_is_the_attention_weighted_sum_of_patch_scores() -> None:
    model = readout()
    x, attention = torch.randn(B, M, D), torch.rand(B, T, H, M).softmax(dim=-1)
    patch_logits, image_logits = model(x, attention)
    for b in range(B):
        Y = [model.head(x_m) for x_m in x[b]]
        a = sum((attention[b, model.token, h] for h in range(H)), torch.zeros(M)) / H
        weighted = (a_m * Y_m for a_m, Y_m in zip(a, Y, strict=True))
        y = torch.sigmoid(sum(weighted, torch.zeros(C)))
        torch.testing.assert_close(patch_logits[b], torch.stack(Y))
        torch.testing.assert_close(model.head.activation(image_logits[b]), y)


def test_readout_sends_no_gradient_back() -> None:
    model = readout()
    x = torch.randn(B, M, D, requires_grad=True)
    attention = torch.rand(B, T, H, M, requires_grad=True)
    patch_logits, image_logits = model(x, attention)
    (patch_logits.sum() + image_logits.sum()).backward()
    assert x.grad is None
    assert attention.grad is None
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_an_activation_can_be_named() -> None:
    x = torch.randn(B, C)
    assert torch.equal(Head(D, C, activation="softmax").activation(x), x.softmax(dim=-1))
    assert torch.equal(Head(D, C, activation="sigmoid").activation(x), x.sigmoid())
    with pytest.raises(ConfigError, match="activation='relu': expected softmax or sigmoid"):
        Head(D, C, activation="relu")  # type: ignore[arg-type]
