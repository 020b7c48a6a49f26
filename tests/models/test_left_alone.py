"""Selection uses little memory and does not change the model."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ips.models import LOADS, IPSNet, Load
from ips.nn import (
    CrossAttentionTransformer,
    Head,
    thin_resnet,
)
from ips.nn.embedding import micro_batch
from tests.models.small_net import (
    D,
    OnDemand,
    assert_same,
    build,
    loss_of,
    memory,
    pixels,
    softmax,
)

# Memory


class Alive:
    """How many rows of the tensors it was shown exist at the same time, at the most."""

    def __init__(self) -> None:
        self.rows = self.peak = 0
        self.lock = threading.RLock()

    def watch(self, tensor: Tensor) -> None:
        with self.lock:
            self.rows += len(tensor)
            self.peak = max(self.peak, self.rows)
        weakref.finalize(tensor, self.forget, len(tensor))

    def forget(self, rows: int) -> None:
        with self.lock:
            self.rows -= rows


WIDE, LARGE = 13, 64  # an embedding size that nothing else has; a patch of few per micro-batch


class EmbeddingsAlive(TorchDispatchMode):
    """Watches each tensor that looks like ``(n, WIDE)`` from its making to its end."""

    def __init__(self, alive: Alive) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive = alive

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dim() == 2 and out.shape[1] == WIDE:
            self.alive.watch(out)
        return out


@pytest.mark.parametrize("embeddings", [False, True])
def test_memory_does_not_grow_with_the_number_of_patches(embeddings: bool) -> None:
    encoder = nn.Sequential(nn.AdaptiveAvgPool2d((1, WIDE)), nn.Flatten())
    aggregator = CrossAttentionTransformer(WIDE, tokens=1, heads=1)
    heads = {"task": Head(WIDE, 2, activation=softmax)}
    model = IPSNet(encoder, aggregator, heads, keep=5, chunk=10)
    block = micro_batch((1, LARGE, LARGE), model.device)
    for count in (200, 2_000):
        read, embedded = Alive(), Alive()

        def make(index: Tensor, read: Alive = read) -> Tensor:
            patches = torch.zeros(len(index), 1, LARGE, LARGE, dtype=torch.uint8)
            patches[:, 0, 0, :2] = torch.stack([index // 256, index % 256], dim=1)
            read.watch(patches)
            return patches

        source = OnDemand(count, make)
        with EmbeddingsAlive(embedded):
            model.select([source], load="lazy", embeddings=embeddings)
        # One block in hand and one being let go, two read ahead; then the patches kept.
        assert block <= read.peak <= 4 * block + 5
        assert block <= embedded.peak <= 8 * block  # and the short list, its views and its copies
        assert read.rows == 0


# Nothing is touched


def flags_and_tensors(model: nn.Module) -> tuple[list[bool], dict[str, Tensor]]:
    return [part.training for part in model.modules()], copy.deepcopy(model.state_dict())


@pytest.fixture
def untouched() -> Iterator[IPSNet]:
    """A model that must come out of the test as it went in."""
    model = build().train()
    model.encoder.bn1.eval()
    flags, tensors = flags_and_tensors(model)
    yield model
    assert [part.training for part in model.modules()] == flags
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("load", LOADS)
def test_selection_does_not_change_statistics_or_modes(untouched: IPSNet, load: Load) -> None:
    chosen = untouched.select([memory(30), memory(5)], load=load, embeddings=True)
    assert chosen.embeddings is not None
    assert not chosen.embeddings.requires_grad
    untouched.predict(memory(30), load=load)


@pytest.mark.parametrize("load", LOADS)
def test_a_failing_source_does_not_change_them(untouched: IPSNet, load: Load) -> None:
    def fail(index: Tensor) -> Tensor:
        if len(index) > 1:
            raise OSError("the disk is gone")
        return pixels(1)

    with pytest.raises(OSError, match="disk"):
        untouched.select([OnDemand(9, fail)], load=load)


class Failing(nn.Module):
    """Has a frozen BatchNorm, and gives up at the sight of a patch."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.norm = nn.BatchNorm2d(1).eval(), nn.BatchNorm2d(1)

    def forward(self, x: Tensor) -> Tensor:
        if self.norm(self.frozen(x)).isfinite().all():
            raise RuntimeError("out of memory")
        return x.flatten(1)


@pytest.mark.parametrize("load", LOADS)
def test_a_failing_encoder_does_not_change_them(load: Load) -> None:
    model = build(Failing())
    flags, tensors = flags_and_tensors(model)
    with pytest.raises(RuntimeError, match="out of memory"):
        model.select([memory(9)], load=load)
    assert [part.training for part in model.modules()] == flags
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.state_dict().items())
    assert torch.is_grad_enabled()


def test_the_folded_copy_is_not_in_the_state_dict() -> None:
    encoder = thin_resnet(stages=1, width=D, channels=1)
    names = {f"encoder.{name}" for name in encoder.state_dict()}
    model = build(encoder)
    model.predict(memory(9))
    state = model.state_dict()
    assert {name for name in state if not name.startswith(("aggregator.", "heads."))} == names
    assert {id(p) for p in model.encoder.parameters()} == {id(p) for p in encoder.parameters()}
    assert len(list(model.encoder.modules())) == len(list(encoder.modules()))


def test_selection_uses_the_current_weights_also_in_a_copy() -> None:
    model, source = build(), memory(40)
    model.select([source])
    twin = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(model, model.select([source])).backward()
        optimizer.step()
    fresh = build()
    fresh.load_state_dict(model.state_dict())
    assert_same(model.select([source]).selection, fresh.select([source]).selection)
    twin.load_state_dict(model.state_dict())
    assert_same(twin.select([source]).selection, fresh.select([source]).selection)


def test_a_model_that_first_predicted_in_inference_mode_can_still_be_trained() -> None:
    model, source = build(), memory(20)
    with torch.inference_mode():
        model.predict(source)
    loss_of(model, model.select([source])).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    model.predict(source)
