"""The controls of the page in a real browser: view, labels, predictions on request, small screens.

No other test of this module opens the third image, so that it is predicted only on request.
"""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ips.predictor import Predictor
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
from tests.viewer.viewer_files import NASTY

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

sync_api = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def address(
    run: Path, images: Path, predictor: Predictor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The page with no prediction yet; the label of the first image is right, the second wrong."""
    folder = tmp_path_factory.mktemp("labelled") / "run"
    folder.mkdir()
    shutil.copy(run / "model.safetensors", folder)
    labels = {}
    for name in ("a.png", "b.tif"):
        answer = predictor.answers(predictor.predict(images / name))["shape"]
        labels[name] = answer if name == "a.png" else "ring" if answer != "ring" else "bar"
    with (folder / "labels.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("path", "shape"), *labels.items()])
    with served_by_command(folder, images, "--labels", folder / "labels.csv") as address:
        yield address


def test_images_are_predicted_when_they_are_asked_for(page: Page) -> None:
    statuses = page.locator("#images .status")
    assert statuses.nth(2).inner_text() == "not predicted"
    assert page.is_enabled("#predict-all")
    assert page.is_disabled("#pause")  # nothing to interrupt
    page.click("#predict-all")
    sync_api.expect(statuses.nth(2)).not_to_have_text(re.compile("not predicted|…|%"))
    sync_api.expect(statuses.nth(3)).to_have_text("failed")
    sync_api.expect(page.locator("#predict-all")).to_be_disabled()
    assert page.locator("#images [aria-selected=true] .name").inner_text() == "a.png"


def test_predictions_can_be_paused_and_resumed(page: Page) -> None:
    asked: list[str] = []

    def running(route: Route) -> None:
        response = route.fetch()
        body = response.json()
        body["queue"] |= {"busy": True}
        for row in body["images"]:
            row |= {"state": "running", "done": 35, "total": 140, "predictions": None}
        route.fulfill(response=response, json=body)

    page.route(re.compile(r"/api/images(\?|$)"), running)
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.reload()
    button = page.get_by_role("button", name="Pause")
    sync_api.expect(button).to_be_enabled()
    button.click()
    sync_api.expect(page.locator("#pause")).to_have_text("Resume")
    page.keyboard.press("p")
    sync_api.expect(page.locator("#pause")).to_have_text("Pause")
    queue = [name for name in asked if name.startswith("queue")]
    assert [name.rpartition("&")[2] for name in queue] == ["paused=true", "paused=false"]


def test_true_labels_and_the_filter_for_wrong_predictions(page: Page) -> None:
    choose(page, 1)
    ready(page)
    page.get_by_role("radio", name="shape").click()
    items = page.locator("#images li")
    assert items.nth(0).locator(".verdict").inner_text() == "✓"
    assert items.nth(1).locator(".verdict").inner_text() == "✗"
    assert "1 wrong" in page.inner_text("#count")
    assert page.locator("#probabilities .truth", has_text="true").count() == 1
    page.keyboard.press("w")
    assert page.locator("#images li:visible .name").all_inner_texts() == ["b.tif"]
    page.uncheck("#wrong")
    page.get_by_role("radio", name="all").click()
    assert "true: " in page.inner_text("#probabilities")


def test_tools_zoom_fit_and_show_the_full_resolution(page: Page) -> None:
    fitted = data(page, "zoom")
    for _ in range(2):
        page.click("#zoom-in")
    until(page, f"zoom > {fitted + 1.9}")
    page.click("#zoom-out")
    until(page, f"zoom < {fitted + 1.1}")
    page.keyboard.press("1")
    until(page, "zoom == 2")  # of 700 x 500 px
    assert page.inner_text("#magnification") == "100 %"
    page.keyboard.press("0")
    until(page, f"zoom == {fitted}")


def test_full_screen(page: Page) -> None:
    button = page.get_by_role("button", name="Full screen")
    button.click()
    page.wait_for_function("() => document.fullscreenElement?.tagName === 'MAIN'")
    sync_api.expect(button).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("f")
    page.wait_for_function("() => !document.fullscreenElement")
    sync_api.expect(button).to_have_attribute("aria-pressed", "false")


def test_the_overview_shows_and_moves_the_visible_part(page: Page) -> None:
    assert not page.is_visible("#overview")  # all is visible
    page.keyboard.press("1")
    page.click("#zoom-in")
    page.wait_for_selector("#overview:not([hidden]) img.loaded")
    box = page.locator("#overview").bounding_box()
    assert box is not None
    assert box["width"] / box["height"] == pytest.approx(700 / 500, rel=0.05)
    page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.7 * box["height"])
    until(page, f"x > {0.75 * 700}")
    assert data(page, "x") == pytest.approx(0.8 * 700, abs=12)
    assert data(page, "y") == pytest.approx(0.7 * 500, abs=12)
    frame = page.locator("#frame").bounding_box()
    assert frame is not None
    middle = frame["x"] + frame["width"] / 2 - box["x"], frame["y"] + frame["height"] / 2 - box["y"]
    assert middle == pytest.approx((0.8 * box["width"], 0.7 * box["height"]), abs=12)


def test_coordinates_and_magnification_are_shown(page: Page) -> None:
    page.keyboard.press("1")
    until(page, "zoom == 2")
    box = page.locator("#map").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2 + 40, box["y"] + box["height"] / 2 - 30)
    found = re.fullmatch(r"x (\d+), y (\d+)", page.inner_text("#pointer"))
    assert found is not None
    expected = data(page, "x") + 40, data(page, "y") - 30
    assert tuple(map(int, found.groups())) == pytest.approx(expected, abs=2)
    choose(page, 1)
    ready(page)
    page.keyboard.press("1")
    until(page, "zoom == 2")
    assert page.inner_text("#magnification") == "40×, 100 %"  # 0.25 micrometres a pixel


def test_the_map_can_be_smooth(page: Page) -> None:
    page.locator("#opacity").fill("1")
    plain = drawn(page)
    page.keyboard.press("s")
    until(page, "attention?.includes('smooth=true')")
    assert changed(drawn(page), plain) > 1000


def test_the_absolute_scale(page: Page) -> None:
    page.locator("#opacity").fill("1")
    ranks, ticks = drawn(page), page.locator("#ticks span").all_inner_texts()
    assert len(ticks) == 5
    assert re.fullmatch(r"[\d,]+×", ticks[-1])
    assert "an even share" in page.inner_text("#spread")
    assert re.search(r"×", page.inner_text("#gallery li:first-child"))
    page.select_option("#map-scale", "share")
    until(page, "attention?.includes('scale=share')")
    assert page.locator("#ticks span").all_inner_texts() == ["≤1×", "10×", "≥100×"]
    assert changed(drawn(page), ranks) > 1000


def test_uniform_attention_has_a_badge(page: Page) -> None:
    assert not page.is_visible("#uniform")

    def uniform(answer: dict[str, Any]) -> None:
        for found in answer["spreads"]:
            found |= {"uniform": True, "text": f"nearly uniform {NASTY}"}

    changed_answer(page, uniform)
    assert page.inner_text("#uniform") == "Attention is nearly uniform"
    assert page.inner_text("#spread") == f"nearly uniform {NASTY}"
    page.uncheck("#attention")
    assert not page.is_visible("#uniform")  # no attention is shown


def test_numbers_are_shown_with_the_truth(page: Page) -> None:
    def number(answer: dict[str, Any]) -> None:
        answer["probabilities"][0] = []
        answer["predictions"][0] |= {
            **{"names": ["0.73"], "number": True, "note": "high risk"},
            **{"probability": None, "correct": None},
        }

    changed_answer(page, number)
    page.get_by_role("radio", name="shape").click()
    assert re.search(r"0\.73\s+high risk, true: ", page.inner_text("#probabilities"))


def test_magnifications_can_be_switched(page: Page) -> None:
    assert not page.is_visible("#parts")

    def two(answer: dict[str, Any]) -> None:
        answer["parts"] = [answer["parts"][0] | {"magnification": m} for m in (5, 20)]
        answer["part_numbers"] = [0, 0, 1, 1, 1, 1]

    page.route(
        "**/attention/**",
        lambda route: route.continue_(url=route.request.url.replace("part=1", "part=0")),
    )
    changed_answer(page, two)
    assert page.locator("#gallery li").count() == 2
    page.get_by_role("radio", name="20×").click()
    until(page, "attention?.includes('part=1')")
    assert page.locator("#gallery li").count() == 4
    page.keyboard.press("m")
    until(page, "attention?.includes('part=0')")
    assert page.locator("#parts [aria-checked=true]").inner_text() == "5×"


def test_controls_are_inactive_if_there_is_nothing_to_control(page: Page) -> None:
    assert page.is_disabled("#annotations")  # the first image has none
    assert page.is_enabled("#opacity")
    page.keyboard.press("a")
    for name in ("opacity", "top", "smooth", "colour-maps", "map-scale"):
        assert page.is_disabled(f"#{name}")
    page.keyboard.press("a")
    choose(page, 3)  # damaged
    page.wait_for_selector("#notice:not([hidden])")
    for name in ("attention", "opacity", "outlines", "annotations", "zoom-in", "fit"):
        assert page.is_disabled(f"#{name}")
    assert not page.is_visible("#overview")
    assert page.is_enabled("#filter")


def test_the_list_has_thumbnails(page: Page) -> None:
    page.wait_for_function("() => document.querySelectorAll('#images img.loaded').length === 3")
    widths = page.eval_on_selector_all("#images img", "images => images.map(i => i.naturalWidth)")
    assert widths == [256, 171, 256, 0]


def test_the_name_of_an_annotation_never_becomes_an_element(page: Page) -> None:
    def nasty(route: Route) -> None:
        response = route.fetch()
        shapes = response.json()
        shapes[0]["name"] = NASTY
        route.fulfill(response=response, json=shapes)

    page.route("**/annotations", nasty)
    choose(page, 1)
    ready(page)
    page.keyboard.press("1")
    until(page, "zoom == 2")
    box = page.locator("#map").bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2 + 150 - data(page, "x")  # inside of the triangle
    y = box["y"] + box["height"] / 2 + 150 - data(page, "y")
    for number in range(50):  # Leaflet ignores moves that follow another one too soon
        page.mouse.move(x + number % 5, y)
        if page.locator(".leaflet-tooltip").count():
            break
    assert page.inner_text(".leaflet-tooltip") == NASTY
    assert page.locator("img[src=x]").count() == 0


def test_a_phone_has_one_column(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    boxes = [page.locator(name).bounding_box() for name in ("#library", "main", "#answer")]
    lefts = [box["x"] for box in boxes if box]
    tops = [box["y"] for box in boxes if box]
    assert lefts == [0, 0, 0]
    assert tops == sorted(set(tops))
    ready(page)


def test_a_large_screen_has_larger_pictures(page: Page) -> None:
    def width(name: str) -> float:
        box = page.locator(name).first.bounding_box()
        assert box is not None
        return box["width"]

    before = [width(name) for name in ("#gallery img", "#images img", "#answer")]
    page.set_viewport_size({"width": 1920, "height": 1080})
    after = [width(name) for name in ("#gallery img", "#images img", "#answer")]
    assert all(b > 1.15 * a for a, b in zip(before, after, strict=True))
