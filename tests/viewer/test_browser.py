"""The page in a real browser, served by the command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.viewer.browsing import changed, choose, data, drawn, ready, show_top, until
from tests.viewer.viewer_files import NASTY

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

sync_api = pytest.importorskip("playwright.sync_api")


def test_the_page_opens_with_tiles_and_predictions(page: Page) -> None:
    assert page.title() == "a.png – ips view"
    names = page.locator("#images .name").all_inner_texts()
    assert names == ["a.png", "b.tif", f"c {NASTY}.png", "d.png"]
    assert page.locator("#gallery li").count() == 6
    assert "6 of 140 patches kept" in page.inner_text("#facts")
    picture = drawn(page)
    assert picture[360, 388].tolist() != picture[5, 5].tolist()


def test_zoom_and_pan_move_the_map(page: Page) -> None:
    zoom, x = data(page, "zoom"), data(page, "x")
    before = drawn(page)
    page.click("#zoom-in")
    until(page, f"zoom > {zoom + 0.9}")
    assert np.abs(drawn(page) - before).mean() > 1
    page.mouse.move(700, 400)
    page.mouse.down()
    page.mouse.move(500, 400, steps=4)
    page.mouse.up()
    until(page, f"x > {x + 10}")
    page.mouse.wheel(0, -300)
    until(page, f"zoom > {zoom + 1.1}")


def test_opacity_and_top_change_what_is_drawn(page: Page) -> None:
    show_top(page, 12, 0)
    page.locator("#opacity").fill("0")
    nothing = drawn(page)
    page.locator("#opacity").fill("0.5")
    half = drawn(page)
    page.locator("#opacity").fill("1")
    full = drawn(page)
    a, b = np.abs(half - nothing).mean(), np.abs(full - nothing).mean()
    assert b > 1.5 * a > 1
    show_top(page, 7, 0.8)
    less = drawn(page)
    assert 0 < changed(less, nothing) < 0.5 * changed(full, nothing)
    page.select_option("#colour-maps", "magma")
    assert changed(drawn(page), less) > 0


def test_the_task_changes_the_map_and_the_prediction(page: Page) -> None:
    page.locator("#opacity").fill("1")
    pictures, texts = [], []
    for name in ("shape", "marks", "all"):
        page.get_by_role("radio", name=name).click()
        assert page.locator("#tasks [aria-checked=true]").inner_text() == name
        pictures.append(drawn(page))
        texts.append(page.inner_text("#probabilities"))
    assert np.abs(pictures[0] - pictures[1]).mean() > 0.5
    assert np.abs(pictures[1] - pictures[2]).mean() > 0.1
    assert "ring" in texts[0]
    assert NASTY in texts[0]  # as it is, not as an element
    assert "marks" in texts[2]
    page.keyboard.press("t")
    assert page.inner_text("#tasks [aria-checked=true]") == "shape"


def test_a_click_in_the_gallery_goes_to_the_patch(page: Page) -> None:
    zoom = data(page, "zoom")
    for number in (0, 3):
        button = page.locator("#gallery button").nth(number)
        x, y = map(int, re.findall(r"[xy] (\d+)", button.get_attribute("title") or ""))
        button.click()
        until(page, f"x == {x + 25}")
        assert data(page, "y") == y + 25
        assert data(page, "zoom") > zoom
        assert button.get_attribute("aria-current") == "true"


def test_patches_of_one_class_can_be_shown(page: Page) -> None:
    classes = page.locator("#gallery .class").all_inner_texts()
    page.select_option("#classes", label=f"class {classes[0]}")
    assert page.locator("#gallery .class").all_inner_texts() == [
        c for c in classes if c == classes[0]
    ]
    outlined = drawn(page)
    page.keyboard.press("o")
    assert changed(drawn(page), outlined) > 0


def test_a_damaged_image_shows_an_error_and_the_others_are_shown(page: Page) -> None:
    choose(page, 3)
    page.wait_for_selector("#notice:not([hidden])")
    assert re.match(r"d\.png has no known image format, or is damaged", page.inner_text("#notice"))
    sync_api.expect(page.locator("#images li").nth(3)).to_contain_text("failed")
    assert page.locator(".leaflet-tile").count() == 0
    page.keyboard.press("k")
    ready(page)
    assert not page.is_visible("#notice")


def test_a_name_never_becomes_an_element(page: Page) -> None:
    choose(page, 2)
    ready(page)
    assert page.inner_text("#image-name") == f"c {NASTY}.png"
    assert page.title() == f"c {NASTY}.png – ips view"
    assert page.locator("img[src=x]").count() == 0


def test_the_list_is_navigated_by_keyboard_and_filtered(page: Page) -> None:
    page.keyboard.press("ArrowDown")  # the list has the focus from the start
    assert page.inner_text("#images [aria-selected=true] .name") == "b.tif"
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("k")
    assert page.inner_text("#images [aria-selected=true] .name") == "a.png"
    page.keyboard.press("/")
    page.keyboard.type("TIF")
    assert page.locator("#images li:visible .name").all_inner_texts() == ["b.tif"]
    assert page.inner_text("#count").startswith("1 of 4")
    page.keyboard.press("Enter")
    assert page.inner_text("#images [aria-selected=true] .name") == "b.tif"
    ready(page)


def test_a_slide_has_a_scale_and_its_annotations(page: Page) -> None:
    assert not page.is_visible("#scale")
    choose(page, 1)
    ready(page)
    assert re.fullmatch(r"(20|50) µm", page.inner_text("#scale"))
    assert page.is_enabled("#annotations")
    page.mouse.move(1200, 700)
    with_them = drawn(page)
    page.uncheck("#annotations")
    assert changed(drawn(page), with_them) > 0


def test_progress_is_shown(page: Page) -> None:
    def running(route: Route) -> None:
        response = route.fetch()
        body = response.json()
        for row in body["images"]:
            row |= {"state": "running", "done": 35, "total": 140, "predictions": None}
        route.fulfill(response=response, json=body)

    page.route("**/api/images", running)
    page.reload()
    page.wait_for_selector("#progress:not([hidden])")
    assert page.inner_text("#progress-text") == "35 of 140 patches scored"
    assert page.locator("#images .status").first.inner_text() == "25 %"


def test_the_page_follows_the_colour_scheme_of_the_desktop(page: Page) -> None:
    def ground() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)[:3]))

    page.emulate_media(color_scheme="light")
    light = ground()
    page.emulate_media(color_scheme="dark")
    assert ground() < 150 < 600 < light
