from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, kl_divergence

from ips.config import TaskConfig
from ips.tasks import Classification, ClassKind, build_tasks


def test_multiclass_is_cross_entropy_and_accuracy() -> None:
    task = Classification("multiclass", 3)
    logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    labels = torch.tensor([0, 1])
    assert torch.equal(task.loss(logits, labels), F.cross_entropy(logits, labels))
    metric = task.metric()
    task.update(metric, logits, labels)
    assert float(metric.compute()) == 0.5


def test_multilabel_counts_an_image_only_if_all_classes_are_right() -> None:
    task = Classification("multilabel", 2)
    logits = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    labels = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # one right, one half right
    metric = task.metric()
    task.update(metric, logits, labels)
    assert float(metric.compute()) == 0.5


def test_binary_is_one_logit_and_auc() -> None:
    task = Classification("binary", 1)
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
    assert torch.allclose(Classification("multiclass", 4).activation(logits).sum(-1), torch.ones(5))
    assert torch.equal(Classification("multilabel", 4).activation(logits), logits.sigmoid())


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
    task = Classification(kind, 2, score=score)  # type: ignore[arg-type]
    metric = task.metric()
    if kind == "multilabel":
        labels = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    else:
        labels = torch.tensor([0, 1])
    logits = torch.tensor([[3.0, -3.0], [-3.0, 3.0]])[:, : task.outputs]
    task.update(metric, -logits if kind != "multiclass" else logits, labels)
    assert float(metric.compute()) == 1.0
    assert task.metric_name == score


def test_class_probabilities_of_a_binary_task_have_two_columns() -> None:
    p = torch.tensor([[0.25], [1.0]])
    expected = torch.tensor([[0.75, 0.25], [0.0, 1.0]])
    task = Classification("binary", 2)
    assert torch.equal(task.class_probabilities(p), expected)
    assert torch.equal(task.class_activation(p.logit()), expected)
    two = torch.tensor([[0.25, 0.75]])
    assert torch.equal(Classification("multiclass", 2).class_probabilities(two), two)


@pytest.mark.parametrize("p", [0.25, 0.5, 0.5000001, 0.75])
@pytest.mark.parametrize("kind", ["binary", "multilabel"])
def test_a_decision_is_strictly_above_one_half_as_in_torchmetrics(kind: str, p: float) -> None:
    task = Classification(kind, 1, score="accuracy")  # type: ignore[arg-type]
    probabilities = torch.tensor([[p]])
    positive = bool(task.decide(task.class_probabilities(probabilities))[0, -1])
    assert positive == (p > 0.5)
    metric = task.metric()
    labels = torch.tensor([[1]] if kind == "multilabel" else [1])
    metric.update(probabilities.view_as(labels), labels)
    assert positive == bool(metric.compute())


def test_exactly_one_class_of_a_binary_or_multiclass_task_is_predicted() -> None:
    binary = Classification("binary", 2).decide(torch.tensor([[0.5, 0.5], [0.4, 0.6]]))
    assert binary.tolist() == [[True, False], [False, True]]
    multiclass = Classification("multiclass", 3).decide(
        torch.tensor([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    )
    assert multiclass.tolist() == [[False, False, True], [True, False, False]]


def test_labels_become_one_hot() -> None:
    expected = [[False, True, False], [True, False, False]]
    assert Classification("multiclass", 3).one_hot(torch.tensor([1, 0])).tolist() == expected
    labels = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    assert Classification("multilabel", 3).one_hot(labels).tolist() == expected
    assert Classification("binary", 1).one_hot(torch.tensor(1.0)).tolist() == [False, True]


def test_classes_are_called_by_name_or_number() -> None:
    tasks = build_tasks(
        {
            "named": TaskConfig(kind="binary", names=["no", "yes"], metric="accuracy"),
            "numbered": TaskConfig(kind="multiclass", classes=3),
            "single": TaskConfig(kind="binary", classes=1),
        }
    )
    assert tasks["named"].class_names == ["no", "yes"]
    assert tasks["named"].metric_name == "accuracy"
    assert tasks["numbered"].class_names == ["0", "1", "2"]
    assert tasks["single"].class_names == ["0", "1"]


def test_an_auc_without_both_classes_is_undefined() -> None:
    task = Classification("binary", 2, names=("normal", "tumor"))
    metric = task.metric()
    labels = torch.tensor([1.0, 1.0])
    task.update(metric, torch.tensor([[1.0], [2.0]]), labels)
    assert metric.compute().isnan()
    assert task.only_class(task.one_hot(labels)) == "only class tumor"
    task.update(metric, torch.tensor([[0.0]]), torch.tensor([0.0]))
    assert float(metric.compute()) == 1.0


def test_a_class_without_images_does_not_count_in_the_mean_auc() -> None:
    task = Classification("multiclass", 3, score="auc")
    metric = task.metric()
    logits = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0]])
    task.update(metric, logits, torch.tensor([0, 1, 1]))  # class 2 has no image
    assert float(metric.compute()) == pytest.approx(7 / 8)  # 1 for class 0, 3/4 for class 1


def test_equal_labels_of_several_kinds() -> None:
    several = Classification("multilabel", 2)
    assert several.only_class(several.one_hot(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))) is None
    same = several.one_hot(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert several.only_class(same) == "the same labels for every image"
    one = Classification("multiclass", 3)
    assert one.only_class(one.one_hot(torch.tensor([2, 2]))) == "only class 2"
    assert one.only_class(one.one_hot(torch.tensor([2, 0]))) is None


@pytest.mark.parametrize("kind", ["multiclass", "binary", "multilabel"])
def test_equal_weights_change_nothing_and_doubled_ones_double_the_loss(kind: ClassKind) -> None:
    task = Classification(kind, 3)
    logits = torch.randn(5, task.outputs)
    labels = {
        "multiclass": torch.tensor([0, 1, 2, 1, 0]),
        "binary": torch.tensor([0.0, 1, 1, 0, 1]),
        "multilabel": torch.tensor([[0.0, 1, 1]] * 5),
    }[kind]
    plain = task.loss(logits, labels)
    ones = torch.ones(task.answer_counts(labels).shape)
    torch.testing.assert_close(task.loss(logits, labels, weights=ones), plain)
    torch.testing.assert_close(task.loss(logits, labels, weights=2 * ones), 2 * plain)


def test_a_batch_of_one_class_keeps_its_weight() -> None:
    task = Classification("multiclass", 2)
    logits, labels = torch.randn(3, 2), torch.tensor([1, 1, 1])
    weighted = task.loss(logits, labels, weights=torch.tensor([[0.5, 3.0]]))
    torch.testing.assert_close(weighted, 3 * task.loss(logits, labels))


def test_weights_of_labels_are_those_of_their_own_answers() -> None:
    task = Classification("multilabel", 2)
    logits, labels = torch.randn(1, 2), torch.tensor([[1.0, 0.0]])
    weights = torch.tensor([[0.0, 2.0], [4.0, 0.0]])
    each = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")[0]
    expected = (2 * each[0] + 4 * each[1]) / 2
    torch.testing.assert_close(task.loss(logits, labels, weights=weights), expected)


def test_smoothing_spreads_a_label_over_all_classes() -> None:
    logits = torch.randn(4, 3)
    labels = torch.tensor([0, 1, 2, 0])
    target = 0.9 * F.one_hot(labels, 3) + 0.1 / 3
    expected = -(target * logits.log_softmax(dim=1)).sum(dim=1).mean()
    torch.testing.assert_close(
        Classification("multiclass", 3).loss(logits, labels, smoothing=0.1), expected
    )
    one = torch.tensor([[2.0]])
    smooth = Classification("binary", 2).loss(one, torch.tensor([1.0]), smoothing=0.2)
    torch.testing.assert_close(smooth, -(0.9 * F.logsigmoid(one) + 0.1 * F.logsigmoid(-one))[0, 0])


@pytest.mark.parametrize("kind", ["multiclass", "multilabel", "binary"])
def test_divergence_is_that_of_the_distributions(kind: ClassKind) -> None:
    task = Classification(kind, 2 if kind == "binary" else 4)
    logits, usual = torch.randn(5, task.outputs), torch.randn(task.outputs)
    if kind == "multiclass":
        p, q = Categorical(logits=logits), Categorical(logits=usual)
        expected = kl_divergence(p, q)
    else:
        alike = usual.expand(5, -1)
        expected = kl_divergence(Bernoulli(logits=logits), Bernoulli(logits=alike)).sum(dim=1)
    torch.testing.assert_close(task.divergence(logits, usual), expected)
    assert not task.divergence(usual, usual).any()


KINDS = [
    Classification("multiclass", 3),
    Classification("binary", 2),
    Classification("multilabel", 2),
]
LABELS: dict[str, Tensor] = {
    "multiclass": torch.tensor([2, -1, 0, 1]),
    "binary": torch.tensor([1.0, torch.nan, 0.0, 1.0]),
    "multilabel": torch.tensor([[1.0, 0.0], [torch.nan, torch.nan], [1.0, 1.0], [0.0, 0.0]]),
}


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.kind)
def test_an_image_without_a_label_is_as_if_absent(task: Classification) -> None:
    labels, logits = LABELS[task.kind], torch.randn(4, task.outputs)
    rest = [0, 2, 3]
    weights = torch.rand(task.answer_counts(labels).shape)
    for options in ({}, {"weights": weights}, {"smoothing": 0.1}):
        expected = task.loss(logits[rest], labels[rest], **options)
        assert task.loss(logits, labels, **options) == expected
    assert task.answer_counts(labels).equal(task.answer_counts(labels[rest]))
    with_gap, without = task.metric(), task.metric()
    task.update(with_gap, logits, labels)
    task.update(without, logits[rest], labels[rest])
    assert with_gap.compute() == without.compute()
    assert torch.stack([task.missing] * 2).shape == labels[:2].shape


@pytest.mark.parametrize("task", KINDS, ids=lambda task: task.kind)
def test_a_batch_without_labels_has_no_loss_but_a_gradient(task: Classification) -> None:
    logits = torch.randn(1, task.outputs, requires_grad=True)
    loss = task.loss(logits, LABELS[task.kind][1:2])
    loss.backward()
    assert loss == 0
    assert logits.grad is not None
    assert not logits.grad.any()
    metric = task.metric()
    task.update(metric, logits, LABELS[task.kind][1:2])
    assert not metric.update_called
