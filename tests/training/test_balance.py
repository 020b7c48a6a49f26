"""Class weights and balanced sampling of lopsided labels."""

from __future__ import annotations

import torch
from torch import Tensor

from ips.tasks import Classification
from ips.training.balance import class_weights, image_weights, lopsided_classes

GRADE = Classification("multiclass", 3, names=("low", "middle", "high"))
TUMOR = Classification("binary", 2, names=("normal", "tumor"))
SIGNS = Classification("multilabel", 2, names=("stop", "yield"))


def labelled(task: str, values: list[Tensor]) -> list[dict[str, Tensor]]:
    return [{task: value} for value in values]


def grades(*counts: int) -> list[dict[str, Tensor]]:
    numbers = [torch.tensor(c) for c, count in enumerate(counts) for _ in range(count)]
    return labelled("grade", numbers)


def test_classes_are_lopsided_from_three_to_one_on() -> None:
    tasks = {"grade": GRADE}
    assert lopsided_classes(grades(0, 29, 10), tasks) is None
    words = lopsided_classes(grades(0, 30, 10), tasks)
    assert words == "grade: 30 images of middle, 10 of high"
    assert lopsided_classes(grades(10, 0, 0), tasks) is None  # an absent class cannot be balanced


def test_more_than_two_classes_are_not_balanced_unless_asked_to() -> None:
    assert lopsided_classes(grades(60, 30, 10), {"grade": GRADE}) is None


def test_the_most_lopsided_task_is_named() -> None:
    tumors = labelled("tumor", [torch.tensor(float(i < 2)) for i in range(20)])
    rows = [a | b for a, b in zip(tumors, grades(15, 5), strict=True)]
    words = lopsided_classes(rows, {"grade": GRADE, "tumor": TUMOR})
    assert words == "tumor: 18 images of normal, 2 of tumor"


def test_each_label_of_a_multilabel_task_counts() -> None:
    values = [torch.tensor([float(i % 2), float(i < 4)]) for i in range(20)]
    words = lopsided_classes(labelled("sign", values), {"sign": SIGNS})
    assert words == "sign: 16 images of not yield, 4 of yield"
    weights = class_weights(labelled("sign", values), {"sign": SIGNS})["sign"]
    torch.testing.assert_close(weights, torch.tensor([[1.0, 1.0], [0.625, 2.5]]))


def test_all_classes_weigh_the_same_in_total_and_the_mean_is_one() -> None:
    rows = grades(30, 20, 10)
    weights = class_weights(rows, {"grade": GRADE})["grade"]
    counts = torch.tensor([30.0, 20.0, 10.0])
    torch.testing.assert_close(weights[0] * counts, torch.full((3,), 20.0))
    drawn = image_weights(rows, {"grade": GRADE})
    torch.testing.assert_close(drawn.mean(), torch.tensor(1.0))


def test_a_single_rare_image_does_not_weigh_more_than_ten_others() -> None:
    weights = class_weights(grades(1000, 50, 1), {"grade": GRADE})["grade"][0]
    torch.testing.assert_close(weights[2] / weights[0], torch.tensor(10.0))


def test_only_lopsided_questions_with_two_answers_are_weighed_by_default() -> None:
    tasks = {"grade": GRADE, "tumor": TUMOR, "sign": SIGNS}
    signs = labelled("sign", [torch.tensor([float(i % 2), float(i < 2)]) for i in range(20)])
    tumors = labelled("tumor", [torch.tensor(float(i < 2)) for i in range(20)])
    rows = [a | b | c for a, b, c in zip(signs, tumors, grades(16, 3, 1), strict=True)]
    every, some = class_weights(rows, tasks), class_weights(rows, tasks, only_lopsided=True)
    assert torch.equal(some["grade"], torch.ones(1, 3))
    assert every["grade"][0, 2] > 2
    assert torch.equal(some["tumor"], every["tumor"])
    assert some["tumor"][0, 1] == 5
    torch.testing.assert_close(some["sign"], torch.tensor([[1.0, 1.0], [5 / 9, 5.0]]))


def test_an_image_is_drawn_by_its_rarest_label() -> None:
    values = [torch.tensor([1.0, float(i == 0)]) for i in range(8)]
    chances = image_weights(labelled("sign", values), {"sign": SIGNS})
    assert chances[0] == 4 * chances[1]
