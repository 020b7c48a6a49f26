"""The page in a real browser for a model of features and patients: the slides behind them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tifffile
import torch

from ips.annotations import polygon_feature, write_geojson
from ips.config_io import parse_config
from ips.images import open_image
from ips.loading import load
from ips.patches import FeatureWriter, ImagePatches
from ips.training import build_model
from ips.training.folder import save_model
from tests.viewer.browsing import (
    changed,
    changed_answer,
    choose,
    data,
    drawn,
    ready,
    served_by_command,
    until,
)
from tests.viewer.viewer_files import NASTY, picture

if TYPE_CHECKING:
    from playwright.sync_api import Page

sync_api = pytest.importorskip("playwright.sync_api")

PATIENTS = {"p1": ["a", f"b {NASTY}"], "p2": ["c"]}
CONFIG: dict[str, Any] = {
    "data": {"kind": "table", "csv": "patients.csv", "bags": "group"},
    "encoder": {"name": "projector", "dim": 8, "inputs": 8, "stages": 1},
    "select": {"keep": 12, "chunk": 12},
    "aggregate": {"heads": 4},
    "tasks": {"tumor": {"kind": "binary", "names": ["normal", "tumor"]}},
}


def write_slide(path: Path, *, seed: int) -> None:
    """A slide of 0.25 micrometres a pixel, with a second level."""
    pixels = np.repeat(picture(1024, 640, seed=seed)[..., None], 3, axis=2)
    options: dict[str, Any] = {"photometric": "rgb", "tile": (128, 128)}
    with tifffile.TiffWriter(path) as file:
        scale: dict[str, Any] = {"resolution": (40000, 40000), "resolutionunit": 3}
        file.write(pixels, **options, **scale)
        file.write(np.ascontiguousarray(pixels[::2, ::2]), subfiletype=1, **options)


def write_features(path: Path, slide: Path, *, seed: int) -> None:
    """Features of patches of 32 px of the second level."""
    patches = ImagePatches(open_image(slide), patch_size=32, downsample=2.0)
    values = torch.randn(len(patches), 8, generator=torch.Generator().manual_seed(seed))
    with FeatureWriter(path, patch_size=32, extent=64, slide=slide) as writer:
        writer.append(values, patches.coords)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Two patients, the first with two slides and a wrong prediction."""
    root = tmp_path_factory.mktemp("features")
    (root / "run").mkdir()
    for seed, name in enumerate(name for names in PATIENTS.values() for name in names):
        write_slide(root / f"{name}.tif", seed=seed)
        write_features(root / f"{name}.h5", root / f"{name}.tif", seed=seed)
    square = [(100, 100), (400, 100), (400, 400), (100, 400)]
    write_geojson(root / f"{PATIENTS['p1'][1]}.geojson", [polygon_feature(square, name=NASTY)])
    table = CONFIG["data"] | {"csv": str(root / "patients.csv")}
    config = parse_config(CONFIG | {"data": table}, source="test")
    torch.manual_seed(0)
    net = build_model(config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3)  # otherwise its attention would be nearly even
    save_model(net, config, root / "run" / "model.safetensors")
    predictor, lines = load(root / "run"), ["path,patient,tumor"]
    for patient, names in PATIENTS.items():
        files = [str(root / f"{name}.h5") for name in names]
        answer = predictor.answers(predictor.predict(files, name=patient))["tumor"]
        other = "normal" if answer == "tumor" else "tumor"
        lines += [f"{file},{patient},{other if patient == 'p1' else answer}" for file in files]
    (root / "patients.csv").write_text("\n".join(lines))
    with served_by_command(root / "run", root / "patients.csv") as address:
        yield address


def selected(page: Page, number: int) -> None:
    """Wait until an image of the patient is shown."""
    sync_api.expect(page.locator("#facts")).to_contain_text(f"{number + 1} of 2")
    until(page, f"attention?.includes('part={number}&')")
    ready(page)


def test_the_slides_of_a_patient_are_shown_with_attention(page: Page) -> None:
    assert page.inner_text("#count") == "2 patients, 1 predicted, 1 wrong"
    assert page.locator("#images .status").first.inner_text().endswith(" · 2 images")
    assert "12 of 320 patches kept" in page.inner_text("#facts")  # of both slides
    page.wait_for_function(
        "() => [...document.querySelectorAll('#strip img')].every(i => i.naturalWidth > 100)"
    )
    assert page.locator("#strip .name").all_inner_texts() == [f"{n}.h5" for n in PATIENTS["p1"]]
    shares = [float(text.rstrip(" %")) for text in page.locator("#strip .share").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=1.1)
    page.locator("#opacity").fill("1")
    over = drawn(page)
    page.keyboard.press("a")
    assert page.locator("#strip .overlay:visible").count() == 0
    page.wait_for_function("() => document.querySelectorAll('.leaflet-layer').length === 1")
    assert changed(over, drawn(page, layers=1)) > 1000
    page.keyboard.press("a")
    page.select_option("#map-scale", "share")
    until(page, "attention?.includes('scale=share')")
    assert changed(drawn(page), over) > 1000
    strip = page.locator("#strip .overlay").first
    assert "scale=share" in (strip.get_attribute("src") or "")
    page.keyboard.press("1")  # deep zoom
    until(page, "zoom == 2")
    assert page.inner_text("#magnification") == "40×, 100 %"
    assert re.fullmatch(r"\d+ µm", page.inner_text("#scale"))


def test_images_of_a_patient_can_be_switched(page: Page) -> None:
    first = drawn(page)
    assert page.is_disabled("#annotations")
    page.locator("#strip button").nth(1).click()
    selected(page, 1)
    assert changed(drawn(page), first) > 1000
    assert page.is_enabled("#annotations")
    assert NASTY in page.inner_text("#facts")
    page.keyboard.press("i")
    selected(page, 0)
    assert page.locator("#strip [aria-checked=true] b").inner_text() == "1"
    assert page.locator("img[src=x]").count() == 0


def test_top_patches_are_those_of_all_images(page: Page) -> None:
    crops = "[...document.querySelectorAll('#gallery img')].slice(0, 6)"
    page.wait_for_function(f"() => {crops}.every(({{ naturalWidth }}) => naturalWidth === 64)")
    images = page.locator("#gallery .of").all_inner_texts()
    assert len(images) == 12
    assert set(images) == {"image 1", "image 2"}
    button = page.locator("#gallery button").nth(images.index("image 2"))
    x, y = map(int, re.findall(r"[xy] (\d+)", (button.get_attribute("title") or "")[-90:]))
    button.click()
    selected(page, 1)
    until(page, f"x == {x + 32}")
    assert data(page, "y") == y + 32
    assert page.locator("#gallery [aria-current=true]").count() == 1


def test_wrong_only_and_one_image(page: Page) -> None:
    page.keyboard.press("w")
    assert page.locator("#images li:visible .name").all_inner_texts() == ["p1"]
    page.keyboard.press("w")
    choose(page, 1)
    ready(page)
    assert not page.is_visible("#strip")
    assert "320" not in page.inner_text("#facts")


def test_magnifications_of_a_patient_can_be_switched(page: Page) -> None:
    def two(answer: dict[str, Any]) -> None:
        parts = answer["parts"]
        answer["parts"] = [part | {"magnification": m} for m in (5, 20) for part in parts]
        numbers = answer["part_numbers"]
        answer["part_numbers"] = [n + len(parts) * (rank > 3) for rank, n in enumerate(numbers)]

    page.route(
        re.compile("/attention"),
        lambda route: route.continue_(
            url=route.request.url.replace("part=2", "part=0").replace("part=3", "part=1")
        ),
    )
    changed_answer(page, two)
    assert page.locator("#gallery li").count() == 4
    page.get_by_role("radio", name="20×").click()
    until(page, "attention?.includes('part=2&')")
    assert page.locator("#gallery li").count() == 8
