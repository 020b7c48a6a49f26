"""The scores of earlier epochs on disk."""

from __future__ import annotations

from pathlib import Path

import torch

from ips.training.score_store import Scores, ScoreStore


def some_scores(seed: int, *, patches: int = 5) -> Scores:
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(patches, 2, generator=rng).half().float()
    return Scores(
        2 * torch.arange(patches),
        logits,
        torch.randint(1, 9, (patches,), generator=rng),
        torch.rand(patches, generator=rng) < 0.5,
    )


def equal(one: Scores | None, other: Scores) -> bool:
    return one is not None and all(torch.equal(getattr(one, k), v) for k, v in vars(other).items())


def test_scores_come_back_in_the_next_epoch_also_of_images_that_were_not_seen_in_it(
    tmp_path: Path,
) -> None:
    store = ScoreStore(tmp_path, images=3, channels=2)
    assert store.begin(1)
    store.put(2, some_scores(0))
    store.put(0, some_scores(1, patches=7))
    store.finish()
    assert store.begin(2)
    store.put(2, some_scores(2))
    store.finish()
    store.begin(3)
    assert equal(store.get(2), some_scores(2))
    assert equal(store.get(0), some_scores(1, patches=7))
    assert store.get(1) is None
    store.put(0, some_scores(3))
    store.put(0, some_scores(4))  # the last one counts
    assert equal(store.get(0), some_scores(4))


def test_a_checkpoint_finds_its_scores_whenever_the_run_was_killed(tmp_path: Path) -> None:
    store = ScoreStore(tmp_path, images=1, channels=2)
    states = []
    for epoch in (1, 2, 3):
        store.begin(epoch)
        store.put(0, some_scores(epoch))
        store.finish()
        states.append({name: tensor.clone() for name, tensor in store.state_dict().items()})
    store.begin(4)
    store.put(0, some_scores(9))  # and killed
    for epoch in (3, 2):  # the last checkpoint, or the one before if that is damaged
        resumed = ScoreStore(tmp_path, images=1, channels=2)
        resumed.load_state_dict(states[epoch - 1])
        assert resumed.begin(epoch + 1)
        assert equal(resumed.get(0), some_scores(epoch))
    store.remove()
    assert not list(tmp_path.iterdir())


def test_missing_and_damaged_scores_are_unknown(tmp_path: Path) -> None:
    store = ScoreStore(tmp_path, images=2, channels=2)
    store.begin(1)
    store.put(0, some_scores(0))
    store.put(1, some_scores(1))
    store.finish()
    (file,) = tmp_path.iterdir()
    data = bytearray(file.read_bytes())
    data[8] ^= 1
    file.write_bytes(data)
    assert store.begin(2)
    assert store.get(0) is None
    assert equal(store.get(1), some_scores(1))
    file.unlink()
    assert store.filled
    assert not store.begin(2)
    assert not store.filled


def test_blank_patches_and_huge_logits_keep_their_rank_in_half_precision(tmp_path: Path) -> None:
    logits = torch.tensor([[-torch.inf], [1e6], [0.0], [torch.nan]])
    ones = torch.ones(4, dtype=torch.int64)
    store = ScoreStore(tmp_path, images=1, channels=1)
    store.begin(1)
    store.put(0, Scores(torch.arange(4), logits, ones, ones.bool()))
    found = store.get(0)
    assert found is not None
    assert found.logits[0] == -torch.inf
    assert found.logits[1:3].isfinite().all()
    assert found.logits[1] > found.logits[2]
    assert found.logits[3].isnan()


def test_patches_are_found_by_their_numbers_in_the_grid() -> None:
    scores = some_scores(0)  # of patches 0, 2, 4, 6, 8
    found = scores.of(torch.tensor([1, 2, 6, 9]))
    assert found.logits.isnan().all(dim=1).tolist() == [True, False, False, True]
    assert torch.equal(found.logits[1:3], scores.logits[[1, 3]])
    assert found.epochs.tolist() == [0, int(scores.epochs[1]), int(scores.epochs[3]), 0]
    assert found.kept.tolist() == [False, bool(scores.kept[1]), bool(scores.kept[3]), False]
