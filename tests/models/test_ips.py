"""The select step: which patches are selected, and which are embedded."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any
from zlib import crc32

import pytest
import torch
from torch import Tensor, nn

from ips import selection
from ips.errors import ConfigError, PatchError
from ips.models import LOADS, Load, ScoreTable
from ips.models import selecting as module
from ips.models.scoring import Shortlist
from ips.nn import (
    CrossAttentionTransformer,
    FeatureProjector,
    GatedAttention,
    evaluating,
    sinusoidal_position,
)
from ips.patches import MemoryPatches
from ips.selection import MODES, Selection
from tests.models.small_net import (
    CHUNK,
    KEEP,
    SIDE,
    D,
    OnDemand,
    assert_same,
    build,
    loss_of,
    memory,
    on_demand,
    patches_of,
    pixels,
)

# What is selected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("position", [False, True])
@pytest.mark.parametrize("aggregator", [CrossAttentionTransformer, GatedAttention])
def test_selection_follows_from_the_logits_of_encoder_and_aggregator(
    mode: str, position: bool, aggregator: type[CrossAttentionTransformer | GatedAttention]
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
    assert torch.equal(patches_of(got)[0], source.patches[expected.indices])


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
        assert torch.equal(patches_of(chosen[load]), patches_of(chosen["eager"]))
        torch.testing.assert_close(embedded[load].embeddings, embedded["eager"].embeddings)
        torch.testing.assert_close(loss_of(model, chosen[load]), loss_of(model, chosen["eager"]))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("kind", [memory, on_demand])
def test_a_chunk_of_every_image_can_be_embedded_at_once(
    load: Load, kind: Callable[..., Any]
) -> None:
    model = build(position=True)
    sources = [kind(n, seed=n) for n in (90, 2, 70, 50)]  # lazy loading needs more than one run
    expected = model.select(sources, load=load)
    model.micro_batch = "chunk"
    sizes: list[int] = []
    model.encoder.register_forward_hook(lambda _module, given, _out: sizes.append(len(given[0])))
    assert_same(model.select(sources, load=load).selection, expected.selection)
    together = 1 if load == "sequential" else len(sources)
    assert max(sizes) == together * CHUNK


def test_equal_patches_of_a_chunk_are_embedded_each() -> None:
    model = build(micro_batch="chunk")
    count = 0

    def add(_module: nn.Module, given: tuple[Tensor, ...], _out: Tensor) -> None:
        nonlocal count
        count += len(given[0])

    model.encoder.register_forward_hook(add)
    model.select([MemoryPatches(pixels(1).expand(12, -1, -1, -1))])
    assert count == 12


@pytest.mark.parametrize("load", LOADS)
def test_few_patches_are_all_kept_without_padding(load: Load) -> None:
    sources = [memory(2), memory(3, seed=1)]
    chosen, embedded = (build().select(sources, load=load, embeddings=e) for e in (False, True))
    assert chosen.selection.mask.tolist() == [[True, True, False], [True, True, True]]
    assert sorted(chosen.selection.indices[0, :2].tolist()) == [0, 1]
    assert chosen.patches is not None
    assert embedded.embeddings is not None
    assert not chosen.patches[0, 2].any()
    assert not embedded.embeddings[0, 2].any()


def test_prediction_of_an_image_does_not_depend_on_the_batch() -> None:
    model = build()
    sources = [memory(20), memory(3, seed=1), memory(33, seed=2)]
    for source, together in zip(sources, model.predict_batch(sources), strict=True):
        alone = model.predict(source)
        assert torch.equal(alone.indices, together.indices)
        torch.testing.assert_close(alone.logits, together.logits)
        torch.testing.assert_close(alone.attention, together.attention)


def test_the_seed_determines_the_order_of_patches() -> None:
    model = build(mode="random")
    first = model.select([memory(50)], seed=1).selection.indices
    assert torch.equal(first, model.select([memory(50)], seed=1).selection.indices)
    assert not torch.equal(first, model.select([memory(50)], seed=2).selection.indices)


def test_position_affects_selection() -> None:
    alike = MemoryPatches(pixels(1).expand(12, -1, -1, -1))
    without = build(mode="exact", keep=12).select([alike]).selection.scores
    placed = build(mode="exact", keep=12, position=True).select([alike]).selection.scores
    torch.testing.assert_close(without, torch.full((1, 12), 1 / 12))
    assert placed.max() - placed.min() > 1e-3


@pytest.mark.parametrize("position", [False, True])
def test_position_affects_aggregation(position: bool) -> None:
    model = build(position=position).eval()
    chosen = model.select([memory(30)])
    there = model(chosen.patches, chosen.selection).logits["majority"]
    moved = Selection(
        chosen.selection.indices.roll(1, dims=1), chosen.selection.mask, chosen.selection.scores
    )
    here = model(chosen.patches, moved).logits["majority"]
    assert torch.allclose(here, there, atol=1e-5) is not position


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"chunk": 0}])
def test_keep_and_chunk_must_be_positive(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        build(**wrong).select([memory(9)])


def test_patches_of_the_wrong_shape_are_refused() -> None:
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
def test_requesting_embeddings_does_not_change_the_selection(load: Load) -> None:
    model, sources = build(), [memory(60), memory(9, seed=1)]
    with_them = model.select(sources, load=load, embeddings=True)
    without = model.select(sources, load=load)
    assert without.embeddings is None
    assert_same(with_them.selection, without.selection)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("mode", MODES)
def test_returned_embeddings_are_those_of_the_selected_patches(load: Load, mode: str) -> None:
    model = build(mode=mode)
    sources = [memory(200), memory(3, seed=1)]
    chosen = model.select(sources, load=load)
    embedded = model.select(sources, load=load, embeddings=True)
    assert_same(embedded.selection, chosen.selection)
    with evaluating(model):
        again = model.embed(patches_of(chosen), chosen.selection.mask)
    torch.testing.assert_close(embedded.embeddings, again, rtol=1e-4, atol=1e-5)


class Recorder(nn.Module):
    """An encoder without BatchNorm that remembers which patches took part in its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE * SIDE, D)
        self.times: Counter[bytes] = Counter()

    def forward(self, x: Tensor) -> Tensor:
        self.times.update({row.numpy().tobytes() for row in x.detach().contiguous()})
        y: Tensor = self.linear(x.flatten(1))
        return y


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
def test_a_pass_resumes_from_a_partly_filled_table(
    done: int, load: Load, kind: Callable[..., Any]
) -> None:
    model, source = build(position=True), kind(60)
    table = ScoreTable(torch.full((60, model.channels), torch.nan))
    expected = model.predict(source, load=load, table=table)
    assert table.done.all()
    table.logits[done:], table.done[done:] = torch.nan, False
    got = model.predict(source, load=load, table=table)
    assert torch.equal(got.indices, expected.indices)
    torch.testing.assert_close(got.logits, expected.logits)
    assert table.logits.isfinite().all()


def test_a_net_can_be_pickled_after_use() -> None:
    net, source = build().eval(), memory(12)
    before = net.predict(source)
    after = pickle.loads(pickle.dumps(net)).predict(source)
    assert torch.equal(after.indices, before.indices)
    assert torch.equal(after.logits["majority"], before.logits["majority"])
