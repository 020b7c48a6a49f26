"""The cross-attention transformer against PyTorch's attention and a re-statement of Appendix B."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.nn import Aggregated, CrossAttention, CrossAttentionTransformer

B, M, D, T, H = 3, 7, 24, 2, 4


def ragged() -> tuple[Tensor, Tensor]:
    mask = torch.arange(M) < torch.tensor([[M], [3], [1]])
    return torch.randn(B, M, D, dtype=torch.float64), mask


def transformer(**options: Any) -> CrossAttentionTransformer:
    """In float64, evaluation mode, with no parameter at a value that hides its use."""
    made = CrossAttentionTransformer(D, tokens=T, heads=H, **options).double().eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def appendix_b(model: CrossAttentionTransformer, X: Tensor) -> tuple[Tensor, Tensor]:
    """One image, all of its M patches there: token by token and head by head."""
    part = model.attention
    Wq, Wk, Wv, Wo = (w.weight.T for w in (part.query, part.key, part.value, part.out))
    first, second = (layer for layer in model.mlp if isinstance(layer, nn.Linear))
    D_k = D // H
    tokens, attention = [], []
    for q in model.q:
        heads = []
        for h in range(H):
            columns = slice(h * D_k, (h + 1) * D_k)
            Q = q @ Wq[:, columns]
            f = torch.stack([Q @ (X_m @ Wk[:, columns]) / math.sqrt(D_k) for X_m in X])
            a = f.exp() / f.exp().sum()
            heads.append(sum(a_m * (X_m @ Wv[:, columns]) for a_m, X_m in zip(a, X, strict=True)))
            attention.append(a)
        z = torch.cat(heads) @ Wo
        z = layer_norm(z + q, model.norm_attention)
        hidden = (first.weight @ z + first.bias).clamp(min=0)
        mlp = second.weight @ hidden + second.bias
        tokens.append(layer_norm(mlp + z, model.norm_mlp))
    return torch.stack(tokens), torch.stack(attention).view(T, H, -1)


def layer_norm(z: Tensor, norm: nn.LayerNorm) -> Tensor:
    centred = z - z.mean()
    return centred / (centred.square().mean() + 1e-6).sqrt() * norm.weight + norm.bias


def test_transformer_is_appendix_b() -> None:
    model = transformer()
    x, mask = ragged()
    got = model(x, mask)
    assert got.tokens.shape == (B, T, D)
    assert got.attention.shape == (B, T, H, M)
    for b in range(B):
        tokens, attention = appendix_b(model, x[b][mask[b]])
        torch.testing.assert_close(got.tokens[b], tokens)
        torch.testing.assert_close(got.attention[b][..., mask[b]], attention)
        assert not got.attention[b][..., ~mask[b]].any()


def test_attention_is_pytorchs_scaled_dot_product_attention() -> None:
    part = CrossAttention(D, heads=H).double().eval()
    q = torch.randn(T, D, dtype=torch.float64)
    x, mask = ragged()
    Q = part.query(q).view(1, T, H, -1).transpose(1, 2).expand(B, -1, -1, -1)
    K, V = (w(x).view(B, M, H, -1).transpose(1, 2) for w in (part.key, part.value))
    z = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask[:, None, None])
    expected = part.out(z.transpose(1, 2).reshape(B, T, D))
    torch.testing.assert_close(part(q, x, mask).tokens, expected)


def test_folded_query_gives_the_logits_of_the_attention() -> None:
    model = transformer()
    x = torch.randn(M, D, dtype=torch.float64)
    D_k = D // H
    Q = model.attention.query(model.q).view(T, H, D_k)
    K = model.attention.key(x).view(M, H, D_k)
    unfolded = torch.einsum("thk,mhk->mth", Q, K) / math.sqrt(D_k)
    folded = model.scorer()(x)
    assert folded.shape == (M, model.channels)
    torch.testing.assert_close(folded, unfolded.flatten(1), rtol=0, atol=1e-12)
    attended = model(x.unsqueeze(0), torch.ones(1, M, dtype=torch.bool)).attention[0]
    torch.testing.assert_close(folded.softmax(dim=0).T, attended.flatten(0, 1))


def test_score_of_a_patch_depends_on_it_alone() -> None:
    score = transformer().scorer()
    x = torch.randn(M, D, dtype=torch.float64)
    torch.testing.assert_close(score(x)[2:3], score(x[2:3]))


@pytest.mark.parametrize("garbage", [1e6, math.nan])
def test_a_masked_patch_is_as_if_absent(garbage: float) -> None:
    model = transformer()
    x, mask = ragged()
    expected: Aggregated = model(x, mask)
    x[~mask] = garbage
    got = model(x, mask)
    torch.testing.assert_close(got.tokens, expected.tokens, rtol=0, atol=0)
    torch.testing.assert_close(got.attention, expected.attention, rtol=0, atol=0)


def test_no_gradient_reaches_a_masked_patch() -> None:
    x, mask = ragged()
    x.requires_grad_()
    transformer()(x, mask).tokens.sum().backward()
    assert x.grad is not None
    assert not x.grad[~mask].any()
    assert x.grad[mask].any(dim=-1).all()


@pytest.mark.parametrize(("dim", "heads"), [(512, 8), (128, 1)])
def test_query_starts_within_the_square_root_of_one_over_the_head_size(
    dim: int, heads: int
) -> None:
    q = CrossAttentionTransformer(dim, tokens=4, heads=heads).q
    bound = math.sqrt(1 / (dim / heads))
    assert q.shape == (4, dim)
    assert 0.95 * bound < q.abs().max() <= bound
    assert abs(q.mean()) < 0.1 * bound


def test_projections_have_no_bias_and_norms_the_papers_epsilon() -> None:
    model = CrossAttentionTransformer(D, tokens=T, heads=H)
    assert sorted(name for name, _ in model.attention.named_parameters()) == [
        "key.weight",
        "out.weight",
        "query.weight",
        "value.weight",
    ]
    assert [part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)] == [1e-6, 1e-6]
    assert model.mlp[0].out_features == 4 * D


def test_dropout_applies_to_attention_and_both_outputs() -> None:
    model = CrossAttentionTransformer(D, tokens=T, heads=H, dropout=0.2, attention_dropout=0.3)
    rates = {name: part.p for name, part in model.named_modules() if isinstance(part, nn.Dropout)}
    assert rates == {"attention.attention_dropout": 0.3, "mlp.3": 0.2, "dropout": 0.2}


def test_returned_attention_is_before_dropout() -> None:
    model = transformer(attention_dropout=0.5)
    x, mask = ragged()
    expected = model.eval()(x, mask).attention
    torch.testing.assert_close(model.train()(x, mask).attention, expected)


@pytest.mark.parametrize("heads", [5, 7, 48])
def test_heads_that_do_not_divide_the_embedding_are_an_error(heads: int) -> None:
    with pytest.raises(ConfigError, match=f"heads={heads} .* {D}"):
        CrossAttentionTransformer(D, tokens=1, heads=heads)


def test_the_authors_start_is_smaller_than_xaviers() -> None:
    """Projections are uniform in ±sqrt(1 / D) or ±sqrt(3 / D), queries in ±sqrt(1 / D_k)."""
    D = 256
    for start, bound in (("authors", D**-0.5), ("xavier", (3 / D) ** 0.5)):
        torch.manual_seed(0)
        model = CrossAttentionTransformer(D, tokens=4, heads=H, start=start)  # type: ignore[arg-type]
        part = model.attention
        for projection in (part.query, part.key, part.value, part.out):
            weight = projection.weight.detach()
            assert 0.99 * bound < float(weight.abs().max()) <= bound * (1 + 1e-6)
            assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.02)
        queries = model.q.detach().abs().max() * (D // H) ** 0.5
        assert 0.99 < float(queries) <= 1 + 1e-6
