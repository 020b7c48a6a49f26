"""The model: the forward step, the patch-level head and the prediction."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from ips.errors import ConfigError
from ips.models import IPSNet, Selected
from ips.nn import CrossAttentionTransformer, FeatureProjector, evaluating
from ips.patches import MemoryPatches
from ips.selection import Selection
from tests.models.small_net import (
    CLASSES,
    KEEP,
    D,
    assert_same,
    build,
    loss_of,
    memory,
    on_demand,
    patches_of,
    softmax,
)

# The forward step


def kept(model: IPSNet, counts: tuple[int, ...] = (9, 2, 3)) -> Selected:
    return model.select([memory(n, seed=n) for n in counts])


def test_padding_reaches_no_batch_norm() -> None:
    model = build().train()
    alone = copy.deepcopy(model.encoder)
    chosen = kept(model)
    model(chosen.patches, chosen.selection)
    alone(patches_of(chosen)[chosen.selection.mask].float() / 255)
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(model.encoder.state_dict()[name], tensor)


@pytest.mark.parametrize("readout", [False, True])
def test_masked_patches_change_nothing(readout: bool) -> None:
    model = build(readout=readout, position=True).eval()
    chosen = kept(model)
    expected = model(chosen.patches, chosen.selection)
    mask = chosen.selection.mask
    dirty = patches_of(chosen).masked_fill(~mask[..., None, None, None], 255)
    elsewhere = Selection(chosen.selection.indices.masked_fill(~mask, 77), mask, mask.float())
    got = model(dirty, elsewhere)
    torch.testing.assert_close(got.logits, expected.logits, rtol=0, atol=0)
    torch.testing.assert_close(got.attention, expected.attention, rtol=0, atol=0)
    torch.testing.assert_close(got.readout_logits, expected.readout_logits, rtol=0, atol=0)


def test_masked_features_that_are_nan_change_nothing() -> None:
    model = build(FeatureProjector(6, dim=D)).train()
    assert isinstance(model.aggregator, CrossAttentionTransformer)
    model.aggregator.eval()
    bags = [MemoryPatches(torch.randn(n, 6)) for n in (9, 2)]
    chosen = model.select(bags)
    expected = loss_of(model, chosen)
    dirty = patches_of(chosen).masked_fill(~chosen.selection.mask[..., None], torch.nan)
    got = loss_of(model, Selected(chosen.selection, dirty, None))
    torch.testing.assert_close(got, expected, rtol=0, atol=0)
    got.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_output_of_an_image_does_not_depend_on_the_batch() -> None:
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


def test_mean_and_std_may_be_integers() -> None:
    source = MemoryPatches(torch.rand(9, 6))
    whole = build(FeatureProjector(6, dim=D), mean=[0], std=[1])
    plain = build(whole.encoder, aggregator=whole.aggregator)
    assert_same(whole.select([source]).selection, plain.select([source]).selection)


# The patch-level head


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
    Y = model.readout.head(model.embed(patches_of(chosen), chosen.selection.mask))
    a = output.attention[:, model.readout.token].mean(dim=1)
    mask = chosen.selection.mask
    for b in range(len(mask)):
        y = sum(a[b, m] * Y[b, m] for m in range(mask.shape[1]) if mask[b, m])
        torch.testing.assert_close(output.patch_logits[b][mask[b]], Y[b][mask[b]])
        torch.testing.assert_close(output.readout_logits[b].sigmoid(), torch.sigmoid(y))


# The prediction


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("readout", [False, True])
def test_prediction_contains_probabilities_and_patches(count: int, readout: bool) -> None:
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


def test_predictions_of_a_batch_contain_no_padding() -> None:
    predictions = build().predict_batch([memory(9), memory(2)])
    assert [len(said.indices) for said in predictions] == [KEEP, 2]
