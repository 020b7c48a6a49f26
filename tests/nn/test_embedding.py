"""Embeddings do not depend on block size, repeated patches or memory layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ips.nn import evaluating, thin_resnet
from ips.nn.embedding import SelectionEncoder, micro_batch

CPU = torch.device("cpu")
WEIGHT = torch.randn(4, 3)


class Recorder(nn.Module):
    """Embeds 2 x 2 patches linearly and keeps what it was given, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(x)
        return x.flatten(1) @ WEIGHT

    def times(self) -> Counter[bytes]:
        """In how many calls a patch took part; filling repeats one within its own call."""
        seen: Counter[bytes] = Counter()
        for call in self.calls:
            seen.update({row.numpy().tobytes() for row in call})
        return seen


def floats(patches: Tensor) -> Tensor:
    return patches.float()


def run(encoder: nn.Module, blocks: list[Tensor]) -> Tensor:
    with evaluating(encoder):
        embed = SelectionEncoder(floats).begin(encoder)
        return torch.cat([embed(block) for block in blocks])


@settings(max_examples=40)
@given(
    different=st.integers(1, 400),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6),
    dtype=st.sampled_from([torch.uint8, torch.float16]),
    seed=st.integers(0, 2**32),
)
def test_embeddings_are_those_of_the_encoder_in_any_blocks(
    different: int, sizes: list[int], dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    pool = torch.randint(256, (different, 1, 2, 2), generator=generator).to(dtype)
    patches = pool[torch.randint(different, (sum(sizes),), generator=generator)]
    x = run(Recorder(), list(patches.split(sizes)))
    torch.testing.assert_close(x, floats(patches).flatten(1) @ WEIGHT)


def test_equal_patches_are_embedded_once() -> None:
    encoder = Recorder()
    pool = torch.randint(256, (5, 1, 2, 2), dtype=torch.uint8)
    patches = pool[torch.randint(5, (900,))]
    run(encoder, list(patches.split(300)))
    assert encoder.times().keys() == {floats(row).numpy().tobytes() for row in pool}
    assert set(encoder.times().values()) == {1}


def test_passes_are_independent() -> None:
    encoder = Recorder()
    fast = SelectionEncoder(floats)
    patches = torch.zeros(3, 1, 2, 2, dtype=torch.uint8)
    fast.begin(encoder)(patches)
    fast.begin(encoder)(patches)
    assert len(encoder.calls) == 2


def test_the_encoder_sees_few_different_sizes() -> None:
    encoder = Recorder()
    size = micro_batch((4,), CPU)
    for n in range(1, 2 * size, 37):
        run(encoder, [torch.randn(n, 4)])
    assert len({len(call) for call in encoder.calls}) <= 8
    assert max(len(call) for call in encoder.calls) <= size


@pytest.mark.parametrize("side", [1, 16, 50, 256, 5_000])
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_micro_batches_are_powers_of_two(side: int, device: str) -> None:
    size = micro_batch((3, side, side), torch.device(device))
    large = micro_batch((3, 2 * side, 2 * side), torch.device(device))
    assert micro_batch((3, side, side), torch.device(device), enlarge=2) == large
    assert size >= 1
    assert size & (size - 1) == 0


class Untraceable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = thin_resnet(stages=1, channels=1, width=4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y * (2.0 if len(x.shape) == 4 and x.isfinite().all() else 1.0)


def hooked() -> nn.Module:
    encoder = thin_resnet(stages=1, channels=1, width=4)
    encoder.bn1.register_forward_hook(lambda module, inputs, output: output.tanh())
    return encoder


def foldable() -> nn.Module:
    return thin_resnet(stages=1, channels=1, width=4)


def without_norm() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten())


@pytest.mark.parametrize("make", [foldable, Untraceable, hooked, without_norm])
def test_embeddings_equal_those_of_evaluation_mode(
    make: Callable[[], nn.Module],
) -> None:
    encoder = make()
    x = torch.randn(20, 1, 16, 16)
    with torch.no_grad():
        encoder(x)  # gives the BatchNorms something to remember
    got = run(encoder, [x])
    with evaluating(encoder):
        torch.testing.assert_close(got, encoder(x), rtol=1e-4, atol=1e-5)


def test_a_hook_added_later_runs() -> None:
    encoder, x = foldable().eval(), torch.randn(5, 1, 16, 16)
    fast = SelectionEncoder(floats)
    encoder.register_forward_hook(lambda module, inputs, output: output + 1)
    with torch.no_grad():
        torch.testing.assert_close(fast.begin(encoder)(x), encoder(x))


class TracedWrong(nn.Module):
    """Runs as it is, and traces into something else: a proxy is no Tensor."""

    def __init__(self, *, crash: bool) -> None:
        super().__init__()
        self.conv, self.bn, self.crash = nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), crash

    def forward(self, x: Any) -> Tensor:
        if not isinstance(x, Tensor):
            x = x["image"] if self.crash else x * 2
        y: Tensor = self.bn(self.conv(x)).flatten(1)
        return y


@pytest.mark.parametrize("crash", [False, True])
def test_a_copy_that_differs_from_the_encoder_is_not_used(crash: bool) -> None:
    encoder = TracedWrong(crash=crash).eval()
    patches = torch.randint(0, 255, (20, 1, 2, 2), dtype=torch.uint8)
    torch.testing.assert_close(run(encoder, [patches]), encoder(patches.float()).detach())


def test_a_copy_is_compared_once() -> None:
    encoder = thin_resnet(stages=1, width=8, channels=1).eval()
    calls: list[int] = []
    plain = encoder.forward

    def counted(x: Tensor) -> Tensor:
        calls.append(len(x))
        return plain(x)

    encoder.forward = counted  # type: ignore[method-assign]
    fast = SelectionEncoder(floats)
    patches = torch.randint(0, 255, (20, 1, 16, 16), dtype=torch.uint8)
    with evaluating(encoder):
        for _ in range(3):
            fast.begin(encoder)(patches)
    assert len(calls) == 1
