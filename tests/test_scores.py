"""A score table in a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from ips.scores import ScoreFile


def test_patches_that_are_done_stay_done(tmp_path: Path) -> None:
    table = ScoreFile(tmp_path / "a.scores", 5, 2)
    assert table.missing().tolist() == [0, 1, 2, 3, 4]
    table.put(torch.tensor([4, 1]), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    resumed = ScoreFile(tmp_path / "a.scores", 5, 2)
    assert resumed.missing().tolist() == [0, 2, 3]
    assert resumed.logits[[4, 1]].tolist() == [[1, 2], [3, 4]]
    resumed.remove()
    assert not (tmp_path / "a.scores").exists()


def test_a_patch_is_marked_after_its_logits_are_written(tmp_path: Path) -> None:
    table = ScoreFile(tmp_path / "a.scores", 5, 2)
    with pytest.raises(RuntimeError):
        table.put(torch.tensor([0, 1]), torch.zeros(2, 7))  # fails while it writes the logits
    assert len(ScoreFile(tmp_path / "a.scores", 5, 2).missing()) == 5


def test_a_file_of_another_size_is_replaced(tmp_path: Path) -> None:
    ScoreFile(tmp_path / "a.scores", 5, 2).put(torch.arange(3), torch.ones(3, 2))
    assert len(ScoreFile(tmp_path / "a.scores", 6, 2).missing()) == 6


def test_without_fallocate_the_file_is_as_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    monkeypatch.setattr("ips.scores._BLOCK", 7)
    table = ScoreFile(tmp_path / "a.scores", 5, 2)
    assert (tmp_path / "a.scores").read_bytes() == bytes(4 * 5 * 2 + 5 * 5)
    table.put(torch.arange(3), torch.ones(3, 2))
    assert ScoreFile(tmp_path / "a.scores", 5, 2).missing().tolist() == [3, 4]


@pytest.mark.parametrize("place", [0, 11, 24, 43, 64])
def test_a_flipped_bit_is_scored_again(tmp_path: Path, place: int) -> None:
    path = tmp_path / "a.scores"
    ScoreFile(path, 5, 2).put(torch.arange(5), torch.arange(10.0).reshape(5, 2))
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    resumed = ScoreFile(path, 5, 2)
    assert len(resumed.missing()) == 1
    done = resumed.done
    assert torch.equal(resumed.logits[done], torch.arange(10.0).reshape(5, 2)[done])
