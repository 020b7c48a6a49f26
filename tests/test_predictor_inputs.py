"""Pixels in memory as well as files, networks of one's own, and how objects print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import ips
from ips import api
from ips.errors import ConfigError, ImageError
from ips.images.image import Pixels
from ips.viewer import Library

TASKS: dict[str, Any] = {"grade": ["low", "middle", "high"], "tumor": {"kind": "binary"}}


def build(channels: int = 3) -> ips.IPSNet:
    return ips.IPSNet(
        ips.nn.resnet18(stages=1, width=8, channels=channels),
        ips.nn.CrossAttentionTransformer(8, tokens=2, heads=2),
        {
            "grade": ips.nn.Head(8, 3, activation="softmax"),
            "tumor": ips.nn.Head(8, 1, activation="sigmoid"),
        },
        keep=4,
        chunk=4,
    )


def predictor(net: ips.IPSNet | None = None) -> ips.Predictor:
    return ips.Predictor.from_net(net or build(), tasks=TASKS, patches={"size": 16, "stride": 8})


@pytest.fixture
def pixels() -> Pixels:
    return np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)


class TestInputs:
    def test_all_kinds_give_the_same_prediction(self, pixels: Pixels, tmp_path: Path) -> None:
        Image.fromarray(pixels).save(tmp_path / "a.png")
        model = predictor()
        whole = model.predict(tmp_path / "a.png")
        for image in (
            str(tmp_path / "a.png"),
            pixels,
            Image.fromarray(pixels),
            torch.from_numpy(pixels).permute(2, 0, 1),
            ips.open_image(tmp_path / "a.png"),
            ips.open_patches(pixels, patch_size=16, stride=8),
        ):
            found = model.predict(image)
            assert torch.equal(found.indices, whole.indices), type(image)
            assert torch.equal(found.logits["grade"], whole.logits["grade"])

    def test_grey_images_have_no_channel(self, pixels: Pixels) -> None:
        grey = pixels[..., 0]
        model = predictor(build(channels=1))
        whole = model.predict(grey)
        for image in (Image.fromarray(grey), torch.from_numpy(grey), torch.from_numpy(grey)[None]):
            assert torch.equal(model.predict(image).indices, whole.indices)

    @pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1"])
    def test_modes_of_pillow_are_read_as_from_a_file(
        self, pixels: Pixels, tmp_path: Path, mode: str
    ) -> None:
        image = Image.fromarray(pixels).convert(mode)
        image.save(tmp_path / "a.png")
        from_file = ips.open_image(tmp_path / "a.png")
        in_memory = ips.open_image(image)
        assert in_memory.channels == from_file.channels
        found, expected = (
            picture.read_region((0, 0), 0, (96, 64)) for picture in (in_memory, from_file)
        )
        assert np.array_equal(found, expected)

    def test_a_picture_is_turned_upright(self, pixels: Pixels) -> None:
        image = Image.fromarray(pixels)
        image.getexif()[274] = 6  # a quarter turn
        assert ips.open_image(image).dimensions == (64, 96)

    def test_what_is_no_image_is_refused(self) -> None:
        with pytest.raises(ImageError, match=r"shape \(1, 2, 3, 4\)"):
            predictor().predict(np.zeros((1, 2, 3, 4), np.uint8))


class TestOwnNetwork:
    def test_gets_answers_maps_and_overlay(self, pixels: Pixels) -> None:
        model = predictor()
        explanation = model.predict(pixels)
        answers = model.answers(explanation)
        assert answers["grade"] in TASKS["grade"]
        assert answers["tumor"] in ("0", "1")
        assert explanation.map("grade").values.shape == (8, 12)
        assert min(explanation.overlay().size) > 100

    def test_gets_files_and_tables(self, pixels: Pixels, tmp_path: Path) -> None:
        Image.fromarray(pixels).save(tmp_path / "a.png")
        model = predictor()
        (one,) = api.predict(model, [tmp_path / "a.png"])
        assert one.answers == model.answers(model.predict(pixels))
        (files,) = api.explain(model, [tmp_path / "a.png"], out=tmp_path / "out")
        assert len(files.files) == 5
        for count in (0, 1):
            table = api.predict_csv(model, [tmp_path / "a.png"], csv=tmp_path / "out.csv")
            assert table.reused == count
        # another network is recognised by its weights
        table = api.predict_csv(predictor(), [tmp_path / "a.png"], csv=tmp_path / "out.csv")
        assert table.reused == 0

    def test_gets_the_viewer(self, pixels: Pixels, tmp_path: Path) -> None:
        Image.fromarray(pixels).save(tmp_path / "a.png")
        library = Library(predictor(), None, {"a": [str(tmp_path / "a.png")]})
        (entry,) = library.entries.values()
        library._predict(entry)
        assert library.answer(entry) is not None
        assert library.name == "IPSNet"
        library.close()
        assert [file.name for file in tmp_path.iterdir()] == ["a.png"]

    def test_gets_a_report(self, pixels: Pixels, tmp_path: Path) -> None:
        rows = ["path,grade,tumor"]
        for number, grade in enumerate(("low", "high", "low", "middle")):
            Image.fromarray(np.roll(pixels, number)).save(tmp_path / f"{number}.png")
            rows.append(f"{number}.png,{grade},{number % 2}")
        table = tmp_path / "labels.csv"
        table.write_text("\n".join(rows))
        page = api.report(predictor(), labels=table, out=tmp_path / "page.html", examples=1)
        text = page.read_text()
        assert "tested on 4 images of labels.csv" in text
        assert "megapixel" not in text
        assert "1.png" in text
        with pytest.raises(ConfigError, match="give a CSV"):
            api.report(predictor())
        with pytest.raises(ConfigError, match="give an HTML file as out"):
            api.report(predictor(), labels=table)

    @pytest.mark.parametrize(
        ("tasks", "message"),
        [
            ({"grade": ["a", "b", "c"]}, "tasks grade, but the network has grade, tumor"),
            (TASKS | {"grade": ["a", "b"]}, "task grade needs 2 logits, but its head has 3"),
            (TASKS | {"tumor": ["a", "b"]}, "task tumor needs 2 logits, but its head has 1"),
            (TASKS | {"tumor": {"kinds": 1}}, "unknown key 'tasks.tumor.kinds'"),
        ],
    )
    def test_tasks_that_do_not_fit_are_refused(self, tasks: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            ips.Predictor.from_net(build(), tasks=tasks, patches={"size": 16})


def test_objects_print_in_one_line(pixels: Pixels) -> None:
    net, model = build(), predictor()
    source = ips.open_patches(pixels, patch_size=16, stride=8)
    chosen = net.select([source, source])
    texts = {
        repr(net): ["IPSNet for grade, tumor", "ResNet", "parameters", "M = 4"],
        repr(model): ["Predictor", "grade (low, middle, high)", "tumor (0, 1)", "16 px"],
        repr(source): ["array in memory", "77 patches of 3 x 16 x 16"],
        repr(chosen): ["2 images, at most 4 patches each", "patches (2, 4, 3, 16, 16)"],
        repr(chosen.selection): ["<Selection: 2 images, at most 4 patches each>"],
        repr(net(chosen.patches, chosen.selection)): ["grade (2, 3), tumor (2, 1)"],
        repr(net.predict(source)): ["grade 0.", "for class", "4 of 77 patches"],
        repr(model.predict(pixels)): ["Explanation", "grade", "4 of 77 patches"],
    }
    for text, parts in texts.items():
        assert "\n" not in text
        assert len(text) < 250, text
        for part in parts:
            assert part in text
