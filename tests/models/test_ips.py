"""The model: what is selected, what is learnt from, and what is left alone."""

from __future__ import annotations

import copy
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ips import selection
from ips.errors import ConfigError, PatchError
from ips.models import LOADS, IPSNet, Load, ScoreTable, Selected
from ips.models import selecting as module
from ips.models.embedding import micro_batch
from ips.models.shortlist import Shortlist
from ips.nn import (
    CrossAttentionTransformer,
    FeatureProjector,
    GatedAttention,
    Head,
    PatchReadout,
    evaluating,
    sinusoidal_position,
    thin_resnet,
)
from ips.patches import MemoryPatches
from ips.patches.source import Coords, Indices
from ips.selection import MODES, Selection

D, SIDE, KEEP, CHUNK = 8, 16, 4, 3
CLASSES = {"majority": 5, "multi": 3}


def softmax(logits: Tensor) -> Tensor:
    return logits.softmax(dim=-1)


def build(encoder: nn.Module | None = None, *, readout: bool = False, **options: Any) -> IPSNet:
    """Two tasks on grey patches; a fresh BatchNorm that has seen nothing is given a past."""
    encoder = encoder or thin_resnet(stages=1, width=D, channels=1, norm=True)
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
    aggregator = options.pop("aggregator", None)
    aggregator = aggregator or CrossAttentionTransformer(D, tokens=len(CLASSES), heads=2)
    heads = {
        "majority": Head(D, CLASSES["majority"], activation=softmax),
        "multi": Head(D, CLASSES["multi"], activation=torch.sigmoid),
    }
    read = PatchReadout(Head(D, 3, activation=torch.sigmoid), task="multi", token=1)
    options = {"keep": KEEP, "chunk": CHUNK, **options}
    return IPSNet(encoder, aggregator, heads, readout=read if readout else None, **options)


def pixels(n: int, *, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (n, 1, SIDE, SIDE), dtype=torch.uint8, generator=generator)


def memory(n: int, *, seed: int = 0) -> MemoryPatches:
    return MemoryPatches(pixels(n, seed=seed), name=f"image of {n}")


class OnDemand:
    """A source that is not in memory: patches come from a function of their numbers."""

    extent = 7

    def __init__(self, count: int, make: Callable[[Tensor], Tensor]) -> None:
        self.count, self.make = count, make
        self.name = f"{count} on demand"
        self.shape = tuple(make(torch.tensor([0])).shape[1:])
        x = np.arange(count, dtype=np.int64)
        self.coords: Coords = np.stack([x * 10, x * 3], axis=1)

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Indices) -> Tensor:
        return self.make(torch.as_tensor(indices))


def on_demand(n: int, *, seed: int = 0) -> OnDemand:
    return OnDemand(n, lambda index: pixels(n, seed=seed)[index])


def loss_of(model: IPSNet, chosen: Selected) -> Tensor:
    output = model(chosen.patches, chosen.selection)
    labels = torch.zeros(len(chosen.patches), dtype=torch.int64)
    multi = output.logits["multi"]
    return F.cross_entropy(output.logits["majority"], labels) + (
        F.binary_cross_entropy_with_logits(multi, torch.ones_like(multi))
    )


def assert_same(left: Selection, right: Selection) -> None:
    assert torch.equal(left.indices, right.indices)
    assert torch.equal(left.mask, right.mask)
    torch.testing.assert_close(left.scores, right.scores)


# What is selected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("aggregator", [CrossAttentionTransformer, GatedAttention])
def test_selection_is_that_of_the_encoders_and_aggregators_own_logits(
    mode: str, position: bool, aggregator: type[nn.Module]
) -> None:
    part = aggregator(D, tokens=2)
    model = build(mode=mode, position=position, aggregator=part, mean=[0.4], std=[0.2]).double()
    source = memory(40)
    with evaluating(model):
        x = model.encoder((source.patches.double() / 255 - 0.4) / 0.2)
        x = x + sinusoidal_position(torch.arange(40), D) if position else x
        own = crc32(source.name.encode()) if mode == "random" else 0  # each image its own draw
        order = selection.shuffled(torch.ones(1, 40, dtype=torch.bool), seed=3 + own)[0]
        choose = getattr(selection, mode)
        expected = choose(part.scorer()(x), keep=KEEP, chunk=CHUNK, order=order)
    got = model.select([source], seed=3)
    assert got.selection.indices[0].tolist() == expected.indices.tolist()
    torch.testing.assert_close(got.selection.scores[0].double(), expected.scores)
    assert torch.equal(got.patches[0], source.patches[expected.indices])


@pytest.mark.parametrize("counts", [(30, 2, 50), (3, 1), (7,)])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [memory, on_demand])
def test_three_loads_give_the_same_selection_patches_and_loss(
    counts: tuple[int, ...], mode: str, kind: Callable[..., Any]
) -> None:
    model = build(mode=mode, position=True)
    sources = [kind(n, seed=n) for n in counts]
    chosen = {load: model.select(sources, load=load) for load in LOADS}
    embedded = {load: model.select(sources, load=load, embeddings=True) for load in LOADS}
    model.eval()
    for load in LOADS[1:]:
        assert_same(chosen[load].selection, chosen["eager"].selection)
        assert_same(embedded[load].selection, chosen["eager"].selection)
        assert torch.equal(chosen[load].patches, chosen["eager"].patches)
        torch.testing.assert_close(embedded[load].embeddings, embedded["eager"].embeddings)
        torch.testing.assert_close(loss_of(model, chosen[load]), loss_of(model, chosen["eager"]))


@pytest.mark.parametrize("load", LOADS)
def test_few_patches_are_all_kept_and_nothing_of_the_padding(load: Load) -> None:
    sources = [memory(2), memory(3, seed=1)]
    chosen, embedded = (build().select(sources, load=load, embeddings=e) for e in (False, True))
    assert chosen.selection.mask.tolist() == [[True, True, False], [True, True, True]]
    assert sorted(chosen.selection.indices[0, :2].tolist()) == [0, 1]
    assert chosen.patches is not None
    assert embedded.embeddings is not None
    assert not chosen.patches[0, 2].any()
    assert not embedded.embeddings[0, 2].any()


def test_an_image_is_answered_the_same_in_any_batch() -> None:
    model = build()
    sources = [memory(20), memory(3, seed=1), memory(33, seed=2)]
    for source, together in zip(sources, model.predict_batch(sources), strict=True):
        alone = model.predict(source)
        assert torch.equal(alone.indices, together.indices)
        torch.testing.assert_close(alone.logits, together.logits)
        torch.testing.assert_close(alone.attention, together.attention)


def test_the_seed_decides_the_order_of_looking() -> None:
    model = build(mode="random")
    first = model.select([memory(50)], seed=1).selection.indices
    assert torch.equal(first, model.select([memory(50)], seed=1).selection.indices)
    assert not torch.equal(first, model.select([memory(50)], seed=2).selection.indices)


def test_position_counts_in_selection() -> None:
    alike = MemoryPatches(pixels(1).expand(12, -1, -1, -1))
    without = build(mode="exact", keep=12).select([alike]).selection.scores
    placed = build(mode="exact", keep=12, position=True).select([alike]).selection.scores
    torch.testing.assert_close(without, torch.full((1, 12), 1 / 12))
    assert placed.max() - placed.min() > 1e-3


@pytest.mark.parametrize("position", [False, True])
def test_position_counts_in_aggregation(position: bool) -> None:
    model = build(position=position).eval()
    chosen = model.select([memory(30)])
    there = model(chosen.patches, chosen.selection).logits["majority"]
    moved = Selection(
        chosen.selection.indices.roll(1, dims=1), chosen.selection.mask, chosen.selection.scores
    )
    here = model(chosen.patches, moved).logits["majority"]
    assert torch.allclose(here, there, atol=1e-5) is not position


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"chunk": 0}])
def test_nothing_to_keep_is_an_error(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build(**wrong).select([memory(9)])


def test_sources_that_do_not_fit_are_named() -> None:
    colour = MemoryPatches(pixels(3).expand(-1, 3, -1, -1), name="colour.png")
    with pytest.raises(PatchError, match=r"colour\.png: patches are 3 channels.*1 channel"):
        build().select([memory(3), colour])
    with pytest.raises(PatchError, match="no patch"):
        build().select([memory(0)])
    features = MemoryPatches(torch.randn(4, 6), name="bag.h5")
    with pytest.raises(PatchError, match=r"bag\.h5: patches are 6 features"):
        build(FeatureProjector(9, dim=D)).select([features])
    with pytest.raises(PatchError, match=r"bag\.h5"):
        build().select([features])


# Embedded once


@pytest.mark.parametrize("load", LOADS)
def test_asking_for_embeddings_changes_no_selection(load: Load) -> None:
    model, sources = build(), [memory(60), memory(9, seed=1)]
    with_them = model.select(sources, load=load, embeddings=True)
    without = model.select(sources, load=load)
    assert without.embeddings is None
    assert_same(with_them.selection, without.selection)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("mode", MODES)
def test_embeddings_handed_over_are_those_of_the_patches_chosen(load: Load, mode: str) -> None:
    model = build(mode=mode)
    sources = [memory(200), memory(3, seed=1)]
    chosen = model.select(sources, load=load)
    embedded = model.select(sources, load=load, embeddings=True)
    assert_same(embedded.selection, chosen.selection)
    with evaluating(model):
        again = model.embed(chosen.patches, chosen.selection.mask)
    torch.testing.assert_close(embedded.embeddings, again, rtol=1e-4, atol=1e-5)


class Recorder(nn.Module):
    """An encoder without BatchNorm that remembers which patches took part in its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE * SIDE, D)
        self.times: Counter[bytes] = Counter()

    def forward(self, x: Tensor) -> Tensor:
        self.times.update({row.numpy().tobytes() for row in x.detach().contiguous()})
        return self.linear(x.flatten(1))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("different", [3, 5_000])
def test_predict_embeds_each_distinct_patch_once(load: Load, different: int) -> None:
    encoder = Recorder()
    one_channel = CrossAttentionTransformer(D, tokens=2, heads=1)
    one_channel.q.data[1] = one_channel.q.data[0]  # alike, so that the short list holds the best
    model = build(encoder, aggregator=one_channel)
    patches = pixels(1_400)
    patches = patches[torch.arange(1_400) % different]
    model.predict(OnDemand(1_400, lambda index: patches[index]), load=load)
    assert len(encoder.times) == min(different, 1_400)
    assert set(encoder.times.values()) == {1}


@pytest.mark.parametrize("load", LOADS)
def test_patches_missing_from_the_short_list_are_embedded_again(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, source = build(), memory(300)
    expected = model.predict(source, load=load)
    monkeypatch.setattr(module, "Shortlist", lambda size: Shortlist(1))
    got = model.predict(source, load=load)
    assert torch.equal(got.indices, expected.indices)
    torch.testing.assert_close(got.logits, expected.logits)


@pytest.mark.parametrize("done", [0, 1, 25, 60])
@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("kind", [memory, on_demand])
def test_a_pass_goes_on_from_a_table_begun_already(
    done: int, load: Load, kind: Callable[..., Any]
) -> None:
    model, source = build(position=True), kind(60)
    table = ScoreTable(torch.full((60, model.aggregator.channels), torch.nan))
    expected = model.predict(source, load=load, table=table)
    assert table.done == 60
    table.logits[done:], table.done = torch.nan, done
    got = model.predict(source, load=load, table=table)
    assert torch.equal(got.indices, expected.indices)
    torch.testing.assert_close(got.logits, expected.logits)
    assert table.logits.isfinite().all()


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
        super().__init__()
        self.alive = alive

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.dim() == 2 and out.shape[1] == WIDE:
            self.alive.watch(out)
        return out


@pytest.mark.parametrize("embeddings", [False, True])
def test_patches_and_embeddings_alive_do_not_grow_with_their_number(embeddings: bool) -> None:
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
def test_selection_leaves_statistics_and_flags_alone(untouched: IPSNet, load: Load) -> None:
    chosen = untouched.select([memory(30), memory(5)], load=load, embeddings=True)
    assert chosen.embeddings is not None
    assert not chosen.embeddings.requires_grad
    untouched.predict(memory(30), load=load)


@pytest.mark.parametrize("load", LOADS)
def test_a_failing_source_leaves_them_alone(untouched: IPSNet, load: Load) -> None:
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
def test_a_failing_encoder_leaves_them_alone(load: Load) -> None:
    model = build(Failing())
    flags, tensors = flags_and_tensors(model)
    with pytest.raises(RuntimeError, match="out of memory"):
        model.select([memory(9)], load=load)
    assert [part.training for part in model.modules()] == flags
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in model.state_dict().items())
    assert torch.is_grad_enabled()


def test_the_folded_copy_is_none_of_the_models() -> None:
    encoder = thin_resnet(stages=1, width=D, channels=1)
    names = {f"encoder.{name}" for name in encoder.state_dict()}
    model = build(encoder)
    model.predict(memory(9))
    state = model.state_dict()
    assert {name for name in state if not name.startswith(("aggregator.", "heads."))} == names
    assert {id(p) for p in model.encoder.parameters()} == {id(p) for p in encoder.parameters()}
    assert len(list(model.encoder.modules())) == len(list(encoder.modules()))


def test_selection_follows_the_weights_and_so_does_that_of_a_copy() -> None:
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


# The forward step


def kept(model: IPSNet, counts: tuple[int, ...] = (9, 2, 3)) -> Selected:
    return model.select([memory(n, seed=n) for n in counts])


def test_padding_reaches_no_batch_norm() -> None:
    model = build().train()
    alone = copy.deepcopy(model.encoder)
    chosen = kept(model)
    model(chosen.patches, chosen.selection)
    alone(chosen.patches[chosen.selection.mask].float() / 255)
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(model.encoder.state_dict()[name], tensor)


@pytest.mark.parametrize("readout", [False, True])
def test_what_stands_in_a_masked_place_changes_nothing(readout: bool) -> None:
    model = build(readout=readout, position=True).eval()
    chosen = kept(model)
    expected = model(chosen.patches, chosen.selection)
    mask = chosen.selection.mask
    dirty = chosen.patches.masked_fill(~mask[..., None, None, None], 255)
    elsewhere = Selection(chosen.selection.indices.masked_fill(~mask, 77), mask, mask.float())
    got = model(dirty, elsewhere)
    torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=0)
    torch.testing.assert_close(got.attention, expected.attention, rtol=0, atol=0)
    torch.testing.assert_close(got.readout_logits, expected.readout_logits, rtol=0, atol=0)


def test_features_that_are_not_numbers_in_a_masked_place_change_nothing() -> None:
    model = build(FeatureProjector(6, dim=D)).train()
    model.aggregator.eval()
    bags = [MemoryPatches(torch.randn(n, 6)) for n in (9, 2)]
    chosen = model.select(bags)
    expected = loss_of(model, chosen)
    dirty = chosen.patches.masked_fill(~chosen.selection.mask[..., None], torch.nan)
    got = loss_of(model, Selected(chosen.selection, dirty, None))
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    got.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_an_image_learns_the_same_beside_a_larger_one() -> None:
    model = build().eval()
    chosen = kept(model, (9, 2))
    alone = model.select([memory(2, seed=2)])
    together = model(chosen.patches, chosen.selection)
    for task, logits in model(alone.patches, alone.selection).logits.items():
        torch.testing.assert_close(together.logits[task][1:], logits)


def gradients(model: IPSNet, chosen: Selected) -> dict[str, Tensor]:
    model.zero_grad()
    loss_of(model, chosen).backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("slice_", [1, 3, 100])
def test_slices_give_the_same_gradients_with_frozen_batch_norms(slice_: int) -> None:
    model = build().double().eval()
    chosen = kept(model)
    whole = gradients(model, chosen)
    model.slice_size = slice_
    sliced = gradients(model, chosen)
    assert sliced.keys() == whole.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(sliced[name], gradient, rtol=1e-9, atol=1e-12)


def test_slices_with_a_batch_norm_in_training_mode_are_an_error() -> None:
    model = build(slice_size=2).train()
    chosen = kept(model)
    with pytest.raises(ConfigError, match=r"slice=2.*BatchNorm"):
        model(chosen.patches, chosen.selection)


def test_whole_numbers_will_do_for_mean_and_deviation() -> None:
    source = MemoryPatches(torch.rand(9, 6))
    whole = build(FeatureProjector(6, dim=D), mean=[0], std=[1])
    plain = build(whole.encoder, aggregator=whole.aggregator)
    assert_same(whole.select([source]).selection, plain.select([source]).selection)


# The read-out


def test_the_readout_loss_reaches_the_readout_alone() -> None:
    model = build(readout=True)
    chosen = kept(model)
    output = model(chosen.patches, chosen.selection)
    assert output.readout_logits is not None
    output.readout_logits.sum().backward()
    reached = {name for name, p in model.named_parameters() if p.grad is not None}
    assert reached == {"readout.head.0.weight", "readout.head.0.bias"}


def test_the_readout_is_the_attention_weighted_sum_of_patch_scores() -> None:
    model = build(readout=True).eval()
    chosen = kept(model)
    output = model(chosen.patches, chosen.selection)
    assert output.patch_logits is not None
    assert output.readout_logits is not None
    assert model.readout is not None
    Y = model.readout.head(model.embed(chosen.patches, chosen.selection.mask))
    a = output.attention[:, model.readout.token].mean(dim=1)
    mask = chosen.selection.mask
    for b in range(len(mask)):
        y = sum(a[b, m] * Y[b, m] for m in range(mask.shape[1]) if mask[b, m])
        torch.testing.assert_close(output.patch_logits[b][mask[b]], Y[b][mask[b]])
        torch.testing.assert_close(output.readout_logits[b].sigmoid(), torch.sigmoid(y))


# The prediction


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("readout", [False, True])
def test_prediction_says_what_was_found_and_where(count: int, readout: bool) -> None:
    model, source = build(readout=readout), on_demand(count)
    said = model.predict(source)
    K = min(KEEP, count)
    assert (said.name, said.patches, said.extent) == (source.name, count, source.extent)
    assert said.indices.shape == said.attention.shape == (K,)
    assert said.coords.tolist() == source.coords[said.indices.numpy()].tolist()
    torch.testing.assert_close(said.attention.sum(), torch.tensor(1.0))
    assert said.attention.tolist() == sorted(said.attention.tolist(), reverse=True)
    mean = torch.stack(list(said.task_attention.values())).mean(dim=0)
    torch.testing.assert_close(mean, said.attention)
    torch.testing.assert_close(said.probabilities["majority"], softmax(said.logits["majority"]))
    torch.testing.assert_close(said.probabilities["multi"], said.logits["multi"].sigmoid())
    assert {task: len(logits) for task, logits in said.logits.items()} == CLASSES
    assert not said.logits["multi"].requires_grad
    if not readout:
        assert said.patch_probabilities is None
        return
    assert model.readout is not None
    assert said.patch_probabilities is not None
    with evaluating(model):
        x = model.embed(source.read(said.indices).unsqueeze(0), torch.ones(1, K, dtype=torch.bool))
        torch.testing.assert_close(
            said.patch_probabilities, model.readout.head(x[0]).sigmoid(), rtol=1e-4, atol=1e-5
        )


def test_prediction_is_the_forward_step_on_the_selection() -> None:
    model, source = build(position=True).eval(), memory(40)
    said = model.predict(source)
    chosen = model.select([source])
    output = model(chosen.patches, chosen.selection)
    torch.testing.assert_close(said.logits["multi"], output.logits["multi"][0].detach())
    assert set(said.indices.tolist()) == set(chosen.selection.indices[0].tolist())


def test_features_without_an_extent_are_predicted_too() -> None:
    model = build(FeatureProjector(6, dim=D))
    said = model.predict(MemoryPatches(torch.randn(20, 6).half()))
    assert said.extent is None
    assert len(said.indices) == KEEP


def test_predictions_of_a_batch_hold_no_padding() -> None:
    predictions = build().predict_batch([memory(9), memory(2)])
    assert [len(said.indices) for said in predictions] == [KEEP, 2]
