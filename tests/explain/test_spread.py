"""When attention is called nearly uniform, on attention made for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from ips.explain.spread import spread

Floats = npt.NDArray[np.float64]


def noisy(count: int, sigma: float) -> Floats:
    """The softmax of random logits."""
    logits = np.random.default_rng(0).normal(scale=sigma, size=count)
    weights: Floats = np.exp(logits) / np.exp(logits).sum()
    return weights


def peaked(count: int, objects: int, share: float) -> Floats:
    """A few patches that have ``share`` of the attention together, the others the rest."""
    values = np.full(count, (1 - share) / (count - objects))
    values[:objects] = share / objects
    return values


@pytest.mark.parametrize("count", [2, 10, 48, 1000, 100_000])
def test_equal_attention_is_uniform(count: int) -> None:
    found = spread(np.full(count, 1 / count))
    assert found.uniform
    assert found.ratio == pytest.approx(1)
    assert found.effective == pytest.approx(count)
    assert found.entropy == pytest.approx(np.log(count))


@pytest.mark.parametrize("count", [10, 48, 1000])
def test_a_little_noise_is_uniform_and_much_is_not(count: int) -> None:
    assert spread(noisy(count, 0.1)).uniform
    assert spread(noisy(count, 0.2)).uniform
    assert not spread(noisy(count, 1.0)).uniform


@pytest.mark.parametrize(
    ("count", "objects", "share"),
    [
        (48, 1, 0.2),  # 9.6 even shares
        (48, 12, 0.75),
        (1000, 4, 0.05),  # small objects with 12 even shares, although the perplexity is 92 %
        (1000, 1, 0.004),
        (100_000, 3, 0.001),
        (4, 1, 0.7),
    ],
)
def test_attention_that_points_to_objects_is_not_uniform(
    count: int, objects: int, share: float
) -> None:
    found = spread(peaked(count, objects, share))
    assert not found.uniform
    assert found.ratio == pytest.approx(share / objects * count)


def test_skipped_patches_and_padding_do_not_count() -> None:
    kept = np.full(20, 0.05)
    among_all = np.zeros(500)
    among_all[::25] = kept
    assert spread(among_all) == spread(kept)
    assert spread(among_all).patches == 20
    assert spread(among_all).uniform


def test_kept_patches_that_are_alike_may_stand_out_from_all() -> None:
    attention = peaked(1000, 10, 0.9)
    assert not spread(attention).uniform
    assert spread(attention[:10]).uniform


def test_it_need_not_be_normalised() -> None:
    assert spread(np.array([3.0, 1.0])).highest == 0.75


def test_one_patch_says_nothing() -> None:
    alone = spread(np.array([1.0]))
    assert not alone.uniform
    assert (alone.ratio, alone.entropy) == (1, 0)
    assert str(alone) == "highest attention of 1 patch: 100 %, 1.0 x an even share"
    assert not spread(np.array([0.0, np.nan])).uniform


def test_words() -> None:
    assert str(spread(peaked(1200, 1, 0.12))) == (
        "highest attention of 1,200 patches: 12 %, 144 x an even share"
    )
    assert str(spread(np.full(48, 1 / 48))) == (
        "attention is nearly uniform, highest of 48 patches: 2.08 %, 1.0 x an even share"
    )


def test_attention_of_almost_nothing_does_not_overflow() -> None:
    found = spread(np.array([1.0, 5e-324, 1e-310]))
    assert (found.patches, found.highest) == (3, 1.0)
    assert found.entropy == pytest.approx(0)
