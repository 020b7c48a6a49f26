"""A network that predicts scores from a coarse view, and what it leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ips.models import ScoreTable, Screen, Selected
from ips.models.screen import recalls
from ips.patches import MemoryPatches, PatchSource, PatchSubset, open_patches
from ips.patches.view import View, ViewedPatches
from ips.selection import Recall, Selection
from tests.models.small_net import D, build

N, KEEP = 200, 3


class Brightness(Screen):
    """Predicts the mean of a patch."""

    def forward(self, patches: Tensor) -> Tensor:
        return patches.float().mean(dim=(1, 2, 3)).unsqueeze(1)


def bright(values: Tensor) -> MemoryPatches:
    """Patches with these mean values."""
    return MemoryPatches(values.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 40, 40).clone())


def screen_of(share: float) -> Brightness:
    screen = Brightness(1, 1)
    screen.share.fill_(share)
    screen.recall.copy_(torch.tensor([[0.8, 0.7, 0.9], [0.97, 0.95, 0.98]]))
    screen.floor.fill_(0.95)
    return screen


def test_the_most_promising_and_some_random_patches_are_left_to_score() -> None:
    values = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    source = bright(values)
    for share, best in ((0.01, 4 * KEEP), (0.1, 20)):
        table = ScoreTable(torch.empty(N, 1))
        screen_of(share).leave_out(source, table, keep=KEEP)
        missing = set(table.missing().tolist())
        assert set(values.argsort(descending=True)[:best].tolist()) <= missing
        assert len(missing) == best + -(-(N - best) // 50)  # 2 % of the others
    table = ScoreTable(torch.empty(N, 1))
    screen_of(1.0).leave_out(source, table, keep=KEEP)
    assert table.listed is None
    few = ScoreTable(torch.empty(10, 1))
    screen_of(0.1).leave_out(bright(values[:10]), few, keep=KEEP)
    assert few.listed is None
    assert len(few.missing()) == 10


@pytest.mark.parametrize(("chance", "doubtful"), [(6.0, True), (4.0, False)])
def test_a_random_patch_with_much_attention_is_doubtful(chance: float, doubtful: bool) -> None:
    """The random patch stands for three, of which two are better than the best of the others."""
    table = ScoreTable(torch.zeros(6, 1))
    listed = torch.tensor([True, True, True, True, False, False])
    table.leave_out(~listed, spare=torch.tensor([False] * 3 + [True] + [False] * 2))
    table.put(table.missing(), torch.tensor([[5.0], [0.0], [-1.0], [chance]]))
    screen = screen_of(0.5)
    assert screen.is_doubtful(table, keep=2) == doubtful
    table.complete()
    assert table.missing().tolist() == [4, 5]
    assert not screen.is_doubtful(table, keep=2)


@pytest.mark.parametrize("shown", [0, 1])
def test_a_shortlist_of_blank_patches_is_doubtful(shown: int) -> None:
    """However few of the random patches show something."""
    table = ScoreTable(torch.zeros(40, 1))
    listed = torch.arange(40) < 12
    table.leave_out(~listed, spare=(torch.arange(40) >= 8) & listed)
    table.put(torch.arange(12), torch.full((12, 1), -torch.inf))
    table.put(torch.arange(shown), torch.zeros(shown, 1))
    table.put(8 + torch.arange(shown), torch.ones(shown, 1))
    assert screen_of(0.5).is_doubtful(table, keep=6)


class Mean(torch.nn.Module):
    """Embeds a patch as its mean."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(1, 2, 3)).unsqueeze(1).expand(-1, D).contiguous()


@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["right", "misleading"])
def test_a_prediction_is_that_of_full_scoring_if_the_screen_is_right_or_noticed(
    sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = torch.arange(N).flip(0)
    net = build(Mean(), keep=KEEP)
    monkeypatch.setattr(net, "channels", 1)
    monkeypatch.setattr(net, "scorer", lambda: lambda x: sign * x[:, :1])
    source = bright(values)
    full = net.empty_table(source)
    whole = net.select([source], tables=[full], seed=1).selection
    net.screen = screen_of(0.05)
    table = net.empty_table(source)
    chosen = net._screened([source], "eager", 1, [table])
    found = net.screened(table)
    assert set(chosen.selection.indices[0].tolist()) == set(whole.indices[0].tolist())
    if sign > 0:
        assert found is not None
        assert int(found.scored.sum()) < N / 10
        assert str(found).startswith(
            "screened, recall 0.97 (0.95 to 0.98) of the attention, 0.80 (0.70 to 0.90) of the "
        )
        assert table.listed is not None
        assert torch.equal(table.logits[table.listed], full.logits[table.listed])
    else:  # a random patch was better than all of the shortlist
        assert found is None
        assert torch.equal(table.logits, full.logits)


def seen(kept: list[int], *, height: float = 20.0) -> list[list[Recall]]:
    """Recalls in images of 1,000 patches, the first most promising, and ``kept`` the best."""
    estimate = torch.arange(1000.0, 0.0, -1).log().unsqueeze(1)
    logits = torch.zeros(1000, 1)
    logits[kept] = height
    return [recalls(estimate, logits, torch.tensor(kept), keep=KEEP)] * 10


def test_calibration_takes_the_least_share_that_finds_enough() -> None:
    screen = Screen(1, 1)
    found = screen.calibrate(seen([0, 5, 11]), floor=0.95)
    assert (found.patches.value, found.attention.value) == (1, 1)
    assert float(screen.share) == pytest.approx(0.01)  # and at least 4 M
    assert screen.calibrate(seen([0, 5, 150]), floor=0.95).attention.value == 1
    assert float(screen.share) == pytest.approx(0.2)
    found = screen.calibrate(seen([0, 5, 150]), floor=0.6)
    assert found.attention.value == pytest.approx(2 / 3)
    assert float(screen.share) == pytest.approx(0.01)
    assert screen.calibrate(seen([998, 999, 997]), floor=0.95).attention.value == 1
    assert float(screen.share) == 1  # all patches are scored


def test_patches_that_do_not_stand_out_need_not_be_found() -> None:
    screen = Screen(1, 1)
    images = seen([0, 5, 11]) + seen([998, 999, 997], height=0.01)
    found = screen.calibrate(images, floor=0.95)
    assert found.patches.value == 0.5
    assert found.attention.value > 0.99
    assert float(screen.share) == pytest.approx(0.01)


def test_a_screen_learns_from_the_scores_of_a_pass() -> None:
    torch.manual_seed(0)
    source = bright(torch.arange(N))
    table = ScoreTable(torch.arange(N).float().unsqueeze(1) / 20)
    table.done.fill_(True)
    kept = torch.arange(N - KEEP, N).unsqueeze(0)
    chosen = Selected(Selection(kept, kept > 0, kept.float()), tables=[table])
    screen = Screen(1, 1)
    optimizer = torch.optim.Adam(screen.parameters(), lr=0.01)
    for _ in range(60):
        loss = screen.distil([source], chosen)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.2
    assert set(screen.estimate(source)[:, 0].topk(10).indices.tolist()) >= {N - 1, N - 2}


def sources() -> list[PatchSource]:
    pixels = np.random.default_rng(0).integers(0, 256, (96, 128, 3), dtype=np.uint8)
    plain = open_patches(pixels, patch_size=64, stride=16)
    view = View(mirrored=True, shift=(0.25, -0.25))
    return [plain, PatchSubset(plain, np.array([1, 4, 5])), ViewedPatches(plain, view)]


def test_coarse_patches_are_averages_of_the_patches() -> None:
    for source in sources():
        coarse = source.coarse(32)
        assert len(coarse) == len(source)
        assert coarse.shape == (3, 32, 32)
        expected = torch.nn.functional.avg_pool2d(source.read([0, 2]).float(), 2)
        assert (coarse.read([0, 2]).float() - expected).abs().max() <= 1
        assert source.coarse(100).shape == source.shape
    memory = bright(torch.arange(4))
    assert torch.equal(memory.coarse(8).read([3]), torch.full((1, 1, 8, 8), 3, dtype=torch.uint8))
