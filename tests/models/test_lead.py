"""The start that is led by classifiers of single patches."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ips.models import IPSNet
from ips.nn import PatchLead
from ips.nn.heads import mean_of_present
from ips.tasks import Classification
from tests.models.small_net import CLASSES, KEEP, D, build, memory

TASKS = {"majority": Classification("multiclass", 5), "multi": Classification("multilabel", 3)}


def leads() -> PatchLead:
    torch.manual_seed(3)
    return PatchLead(D, TASKS)


def surprising(net: IPSNet, lead: PatchLead, image: int) -> set[int]:
    """The M patches with the most unusual answers, found without ``select``."""
    net.eval()
    with torch.no_grad():
        x = net.embed(memory(image).patches.unsqueeze(0), None)[0]
        found = torch.zeros(len(x))
        for task, head in zip(TASKS.values(), lead.heads, strict=True):
            found += task.divergence(head(x), head(lead.usual))
    net.train()
    return set(found.topk(KEEP).indices.tolist())


def test_the_lead_chooses_the_patches_with_the_most_unusual_answers() -> None:
    net, lead = build().train(), leads()
    chosen = net.select([memory(12), memory(9)], by=lead).selection
    for row, image in zip(chosen.indices, (12, 9), strict=True):
        assert set(row.tolist()) == surprising(net, lead, image)
    by_attention = net.select([memory(12)]).selection.indices[0]
    assert set(by_attention.tolist()) != surprising(net, lead, 12)


def test_patches_that_show_nothing_are_not_chosen_although_most_images_show_nothing() -> None:
    lead = PatchLead(2, {"sign": Classification("multiclass", 3)})
    with torch.no_grad():
        lead.heads[0].weight.copy_(torch.eye(3, 2))  # type: ignore[operator]
        lead.heads[0].bias.copy_(torch.tensor([3.0, 0, 0]))  # type: ignore[operator]
        nothing, usual, sign = lead.scorer()(torch.tensor([[2.0, 0], [0, 0], [0, 2.0]])).flatten()
    assert usual == 0
    assert sign > nothing > 0


def test_the_usual_patch_follows_those_that_are_kept() -> None:
    lead = leads()
    x = torch.randn(2, KEEP, D)
    mask = torch.ones(2, KEEP, dtype=torch.bool)
    mask[1, 2:] = False
    for _ in range(200):
        lead(x, mask)
    torch.testing.assert_close(lead.usual, x[mask].mean(dim=0))
    lead.reset()
    assert not lead.usual.any()


def test_a_led_step_returns_the_logits_of_both() -> None:
    net, lead = build(position=True).train(), leads()
    output = net.learn(net.select([memory(12), memory(2)], by=lead), lead)
    assert output.lead_logits is not None
    for task, classes in CLASSES.items():
        assert output.logits[task].shape == output.lead_logits[task].shape == (2, classes)
    sum(logits.sum() for logits in output.lead_logits.values()).backward()  # type: ignore[union-attr]
    assert all(weight.grad is not None for weight in lead.parameters())
    assert any(bool(w.grad.any()) for w in net.encoder.parameters() if w.grad is not None)
    assert net.aggregator is not None
    assert all(w.grad is None for w in net.aggregator.parameters())  # type: ignore[attr-defined]


def test_a_step_that_is_not_led_equals_the_published_one() -> None:
    net, lead = build(position=True).train(), leads()
    sources = [memory(12), memory(9)]
    state = {name: value.clone() for name, value in net.state_dict().items()}

    def logits(led: bool) -> Tensor:
        net.load_state_dict(state)
        torch.manual_seed(0)
        if led:
            output = net.learn(net.select(sources), lead)
        else:
            output = net.forward_train(sources, load="eager", seed=0)
        return torch.cat(list(output.logits.values()), dim=1)

    assert torch.equal(logits(True), logits(False))


def test_the_mean_leaves_out_padding() -> None:
    rows = torch.tensor([[[1.0], [3.0], [99.0]]])
    assert mean_of_present(rows, torch.tensor([[True, True, False]])).tolist() == [[2.0]]


def test_new_weights_of_a_lead_differ() -> None:
    lead = leads()
    before = nn.utils.parameters_to_vector(lead.parameters()).clone()
    lead.reset()
    assert not torch.equal(before, nn.utils.parameters_to_vector(lead.parameters()))
