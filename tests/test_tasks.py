from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ips.training import Task


def test_multiclass_is_cross_entropy_and_accuracy() -> None:
    task = Task("multiclass", 3)
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    labels = torch.tensor([0, 1])
    assert torch.equal(task.loss(logits, labels), F.cross_entropy(logits, labels))
    metric = task.metric()
    task.update(metric, logits, labels)
    assert float(metric.compute()) == 0.5


def test_multilabel_counts_an_image_only_if_all_classes_are_right() -> None:
    task = Task("multilabel", 2)
    logits = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # one right, one half right
    metric = task.metric()
    task.update(metric, logits, labels)
    assert float(metric.compute()) == 0.5


def test_binary_is_one_logit_and_auc() -> None:
    task = Task("binary", 1)
    assert task.outputs == 1
    logits = torch.tensor([[-1.0], [2.0], [0.5], [0.0]])
    labels = torch.tensor([0.0, 1.0, 0.0, 1.0])
    expected = F.binary_cross_entropy_with_logits(logits[:, 0], labels)
    assert torch.allclose(task.loss(logits, labels), expected)
    metric = task.metric()
    task.update(metric, logits, labels)
    assert float(metric.compute()) == pytest.approx(0.75)  # 3 of 4 pairs in order


def test_activation_gives_probabilities() -> None:
    logits = torch.randn(5, 4)
    assert torch.allclose(Task("multiclass", 4).activation(logits).sum(-1), torch.ones(5))
    assert torch.equal(Task("multilabel", 4).activation(logits), logits.sigmoid())


@pytest.mark.parametrize(
    ("kind", "score"),
    [
        ("multiclass", "auc"),
        ("multilabel", "accuracy"),
        ("multilabel", "auc"),
        ("binary", "accuracy"),
    ],
)
def test_other_scores_can_be_asked_for(kind: str, score: str) -> None:
    task = Task(kind, 2, score)  # type: ignore[arg-type]
    metric = task.metric()
    if kind == "multilabel":
        labels = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    else:
        labels = torch.tensor([0, 1])
    logits = torch.tensor([[3.0, -3.0], [-3.0, 3.0]])[:, : task.outputs]
    task.update(metric, -logits if kind != "multiclass" else logits, labels)
    assert float(metric.compute()) == 1.0
    assert task.reported == score
