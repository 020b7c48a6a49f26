"""The test image whose attention is followed during training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ips import api
from ips.data.synthetic.road_signs import NAMES, NO_SIGN, RoadSigns
from ips.patches import MemoryPatches
from ips.report.figures import image_to_follow
from ips.report.snapshots import read_snapshots
from ips.tasks import Classification
from ips.training.data import Data, Item

BINARY, MULTILABEL, MULTICLASS = (
    Classification("binary", 2),
    Classification("multilabel", 3),
    Classification("multiclass", 3),
)


def labelled(*images: dict[str, int | list[int]], background: dict[str, int] | None = None) -> Data:
    """Images that differ in their labels."""
    patches = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    items: list[Item] = [
        (
            MemoryPatches(patches, name=f"image {number}"),
            {name: torch.tensor(label) for name, label in labels.items()},
        )
        for number, labels in enumerate(images)
    ]
    return Data(train=items, test=items, background=background or {})


def test_a_binary_task_follows_a_positive_image() -> None:
    data = labelled({"tumor": 0}, {"tumor": 0}, {"tumor": 1}, {"tumor": 1})
    assert image_to_follow(data, {"tumor": BINARY}) == 2


def test_a_multilabel_task_follows_an_image_with_a_label() -> None:
    data = labelled({"found": [0, 0, 0]}, {"found": [0, 0, 1]})
    assert image_to_follow(data, {"found": MULTILABEL}) == 1


@pytest.mark.parametrize(("background", "expected"), [({"sign": 2}, 1), ({"sign": 1}, 0), ({}, 0)])
def test_a_multiclass_task_follows_another_class_than_the_background(
    background: dict[str, int], expected: int
) -> None:
    data = labelled({"sign": 2}, {"sign": 0}, {"sign": 1}, background=background)
    assert image_to_follow(data, {"sign": MULTICLASS}) == expected


def test_a_task_without_background_does_not_decide() -> None:
    data = labelled({"grade": 1, "tumor": 0}, {"grade": 1, "tumor": 1})
    assert image_to_follow(data, {"grade": MULTICLASS, "tumor": BINARY}) == 1


def test_without_anything_to_find_the_first_image_is_followed() -> None:
    assert image_to_follow(labelled({"tumor": 0}, {"tumor": 0}), {"tumor": BINARY}) == 0


def test_a_training_on_road_scenes_follows_a_sign(tmp_path: Path) -> None:
    scenes = RoadSigns(width=320, height=240, count=4, split="test")
    assert [scenes.label(number) for number in (0, 1)] == [NO_SIGN, NAMES.index("70")]
    settings = ["data.width=320", "data.height=240", "data.train=4", "data.test=4"]
    settings += ["data.validation=4", "encoder.stages=1"]
    api.train("road-signs", run=tmp_path / "run", settings=[*settings, "train.epochs=2"])
    figures = tmp_path / "run" / "figures"
    followed = read_snapshots(figures / "evolution.jsonl", image="road-signs/test/1")
    assert [snapshot.epoch for snapshot in followed] == [1, 2]
    assert (figures / "evolution.png").is_file()
