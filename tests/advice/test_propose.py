"""The values that `ips init` chooses."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ips.advice.cost import Cost
from ips.advice.found import FoundData, FoundRow
from ips.advice.propose import Proposal, propose
from ips.advice.survey import FileFacts, Survey
from tests.advice.pictures import COST


def proposal(
    facts: FileFacts,
    *,
    count: int = 120,
    cost: Cost = COST,
    minutes: float = 30,
    tissue: float | None = None,
    **options: Any,
) -> tuple[dict[str, Any], Proposal]:
    paths = [Path(f"{number}.png") for number in range(count)]
    rows = [FoundRow(path, {"y": "ab"[n % 2]}) for n, path in enumerate(paths)]
    found = Survey(dict.fromkeys(paths, facts), {}, tissue=tissue)
    result = propose(
        FoundData(rows=rows, tasks=["y"]),
        found,
        [],
        lambda _: cost,
        minutes=minutes,
        memory=8 * 2**30,
        **options,
    )
    return {".".join(choice.key): choice.value for choice in result.choices}, result


def photo(width: int, height: int) -> FileFacts:
    return FileFacts("images", width, height, 3)


class TestPropose:
    def test_photographs(self) -> None:
        values, result = proposal(photo(2000, 1500))
        assert values["patches.size"] == 128
        assert values["patches.stride"] == 96
        assert values["encoder.name"] == "efficientnet-lite0"
        assert values["select.load"] == "eager"
        assert 8 <= values["select.keep"] <= 32
        assert values["select.chunk"] >= values["select.keep"]
        assert values["train.batch"] == 4
        assert all(choice.reason for choice in result.choices if choice.key[0] != "tasks")
        assert any("per epoch" in fact and "GB" in fact for fact in result.facts)

    def test_the_training_fits_into_the_time(self) -> None:
        for cost in (1e-4, 1e-3, 1e-2):
            slow = Cost(0.03, 1e-5, cost, 10 * cost, 10**6, 12_288, 10**8)
            values, result = proposal(photo(4000, 3000), cost=slow)
            assert values["train.epochs"] >= 5
            assert not result.warnings
        values, result = proposal(photo(4000, 3000), count=5000, cost=slow)
        assert values["patches.scale"] < 1
        assert "start with fewer images, or use a GPU" in result.warnings[0]

    def test_fewer_patches_are_scored_again_before_the_resolution_is_lowered(self) -> None:
        slow = Cost(0.03, 1e-5, 2.2e-3, 1e-2, 10**6, 12_288, 10**8)
        values, _ = proposal(photo(4000, 3000), count=160, cost=slow)
        assert values["select.refresh"] == 0.1
        assert "patches.scale" not in values
        assert "select.refresh" not in proposal(photo(800, 600), cost=slow)[0]

    def test_the_time_before_the_first_epoch_counts(self) -> None:
        slow = replace(COST, open=0.0, score=1e-2)
        longer = replace(slow, embeds=True)
        at_once, _ = proposal(photo(2000, 1500), cost=slow)
        later, _ = proposal(photo(2000, 1500), cost=longer)
        assert later["train.epochs"] < at_once["train.epochs"]
        assert slow.start_seconds(train=77, patches=300) == 0
        assert longer.start_seconds(train=77, patches=300) == pytest.approx(77 * 300 * 0.01001)

    def test_few_images_are_read_at_a_lower_resolution_to_have_time_for_more_epochs(self) -> None:
        slow = Cost(0.03, 1e-5, 5e-3, 1e-2, 10**6, 12_288, 10**8)
        values, _ = proposal(photo(4000, 3000), count=160, cost=slow)
        steps = math.ceil(102 / values["train.batch"])
        assert values["train.epochs"] * steps >= 250
        assert values["patches.scale"] == 0.667

    def test_the_size_of_objects_sets_the_patch(self) -> None:
        assert proposal(photo(2000, 1500), object_size=40)[0]["patches.size"] == 64
        values, _ = proposal(photo(2000, 1500), object_size=400)
        assert values["patches.size"] == 128
        assert values["patches.scale"] == pytest.approx(128 / 600, rel=0.01)

    def test_the_reason_for_the_size_says_how_to_change_it(self) -> None:
        _, result = proposal(photo(2000, 1500))
        (reason,) = (c.reason for c in result.choices if c.key == ("patches", "size"))
        assert "if objects are larger or smaller, run init again with --object PX" in reason

    def test_the_reason_for_a_scale_is_the_object_or_the_time(self) -> None:
        def reason(result: Proposal) -> str:
            return next(c.reason for c in result.choices if c.key == ("patches", "scale"))

        values, result = proposal(photo(2000, 1500), object_size=400)
        assert reason(result).endswith("of the full size, so that objects fit into patches")
        slow = Cost(0.03, 1e-5, 1e-2, 1e-1, 10**6, 12_288, 10**8)
        values, result = proposal(photo(16_000, 12_000), object_size=400, cost=slow)
        assert values["patches.scale"] < 0.2
        assert reason(result).endswith("or training would take too long")

    @pytest.mark.parametrize(
        ("size", "level", "side"), [(150, 0, 224), (300, 1, 128), (900, 2, 96)]
    )
    def test_large_objects_on_slides_that_are_read_at_a_level(
        self, size: int, level: int, side: int
    ) -> None:
        slide = FileFacts("slides", 8000, 6000, 3, downsamples=(1.0, 4.0, 16.0))
        values, _ = proposal(slide, object_size=size)
        assert (values["patches.level"], values["patches.size"]) == (level, side)

    def test_files_that_differ_in_their_channels_become_rgb(self) -> None:
        paths = [Path(f"{number}.tif") for number in range(40)]
        rows = [FoundRow(path, {"y": "ab"[n % 2]}) for n, path in enumerate(paths)]
        facts = dict.fromkeys(paths, photo(800, 600))
        facts[paths[0]] = FileFacts("images", 800, 600, 4)
        result = propose(
            FoundData(rows=rows, tasks=["y"]),
            Survey(facts, {}),
            [],
            lambda _: COST,
            minutes=30,
            memory=None,
        )
        (choice,) = (c for c in result.choices if c.key == ("patches", "channels"))
        assert choice.value == "rgb"
        assert "3 or 4 channels" in choice.reason

    def test_slides_are_read_piece_by_piece_at_a_resolution_that_is_affordable(self) -> None:
        levels = (1.0, 4.0, 16.0)
        slide = FileFacts("slides", 80_000, 60_000, 3, mpp=0.25, downsamples=levels)
        values, _ = proposal(slide)
        assert values["select.load"] == "lazy"
        assert values["patches.mpp"] >= 2
        unknown = FileFacts("slides", 80_000, 60_000, 3, downsamples=levels)
        values, _ = proposal(unknown)
        assert values["patches.level"] == 2

    def test_empty_patches_of_slides_are_left_out(self) -> None:
        slide = FileFacts("slides", 8000, 6000, 3, mpp=0.5, downsamples=(1.0, 4.0))
        values, result = proposal(slide, tissue=0.25, minutes=600)
        assert values["patches.tissue"] == "otsu"
        assert "patches per image with tissue" in result.facts[1]
        every, all_patches = proposal(
            slide, tissue=0.25, minutes=600, overrides=["patches.tissue=null"]
        )
        assert every["patches.tissue"] is None
        assert "with tissue" not in all_patches.facts[1]
        assert "patches.tissue" not in proposal(slide, minutes=600)[0]
        whole, _ = proposal(slide, tissue=0.25, minutes=600, overrides=["method=cnn"])
        assert "patches.tissue" not in whole

    def test_time_and_memory_are_those_of_the_settings_that_are_given(self) -> None:
        def facts(*overrides: str) -> str:
            return proposal(photo(2000, 1500), overrides=overrides)[1].facts[-1]

        assert "4 min in all" in facts("train.epochs=5")
        assert "48 min in all" in facts("train.epochs=60")
        assert facts("train.batch=32") != facts("train.batch=4")  # memory
        values, result = proposal(photo(2000, 1500), overrides=["patches.size=64"])
        assert (values["patches.size"], values["patches.stride"]) == (64, 48)
        assert result.facts[1] == "about 1,302 patches per image"
        assert result.facts[-1] == facts("patches.size=64", "patches.stride=48")
        assert "patches.scale" not in proposal(photo(2000, 1500), overrides=["patches.mpp=1"])[0]

    def test_a_whole_section_can_be_given(self) -> None:
        values, _ = proposal(photo(800, 600), overrides=["augment={kind: none}", "augment.blur=0"])
        assert values["augment"] == {"kind": "none", "blur": 0}
        assert "augment.kind" not in values
        tasks = "tasks={y: {kind: multiclass, classes: 2}}"
        assert proposal(photo(800, 600), overrides=[tasks])[0]["tasks"]["y"]["classes"] == 2

    def test_features(self) -> None:
        values, _ = proposal(FileFacts("features", 0, 0, 1024, patches=9000))
        assert values["encoder.name"] == "projector"
        assert values["select.keep"] == 256
        assert not any(key.startswith("patches.") for key in values)

    def test_memory_limits_the_batch(self) -> None:
        heavy = Cost(0.03, 1e-5, 1e-3, 1e-2, 10**9, 12_288, 10**8)
        values, _ = proposal(photo(800, 600), count=900, cost=heavy)
        assert values["train.batch"] < 16
