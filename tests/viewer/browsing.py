"""The page of the viewer in Chromium: served by the command, and what tests do with it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

Pixels = npt.NDArray[np.int_]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
COMMAND = "from ips.cli import main; main()"


@contextmanager
def served_by_command(*arguments: object) -> Iterator[str]:
    """Address of the page that `ips view` serves until Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "view", *map(str, arguments), "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    with process:
        assert process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stderr.readline())
        assert found is not None
        yield found[0]
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(30) == 0


def ready(page: Page, *, layers: int = 2) -> None:
    """Wait until the image is predicted and all tiles of its layers are loaded."""
    page.wait_for_selector("#gallery li", timeout=30_000)
    page.wait_for_function(
        """count => {
          const tiles = [...document.querySelectorAll("img.leaflet-tile")];
          const layers = document.querySelectorAll(".leaflet-tile-pane > .leaflet-layer");
          return layers.length === count && tiles.length > 1 && tiles.every(
            ({ complete, naturalWidth, style }) =>
              complete && naturalWidth === 256 && ["", "1"].includes(style.opacity)
          );
        }""",
        arg=layers,
    )


def drawn(page: Page, *, layers: int = 2) -> Pixels:
    """The pixels of the map once they are stable: tiles are painted some time after loading."""
    shot = b""
    for _ in range(50):
        ready(page, layers=layers)
        before, shot = shot, page.locator("#map").screenshot(animations="disabled")
        if shot == before:
            return np.asarray(Image.open(BytesIO(shot)).convert("RGB")).astype(int)
    raise AssertionError("the map keeps changing")


def changed(a: Pixels, b: Pixels) -> int:
    """Number of pixels that differ visibly; scaled tiles are not identical to the bit."""
    return int((np.abs(a - b).max(axis=2) > 8).sum())


def data(page: Page, name: str) -> float:
    return float(page.get_attribute("#map", f"data-{name}") or "nan")


def until(page: Page, what: str) -> None:
    page.wait_for_function(f"() => document.getElementById('map').dataset.{what}")


def choose(page: Page, number: int) -> None:
    """Open an image, and wait until it has replaced the previous one."""
    item = page.locator("#images li").nth(number)
    item.click()
    title = f"{item.locator('.name').inner_text()} – ips view"
    page.wait_for_function("title => document.title === title", arg=title)


def show_top(page: Page, stop: int, min_rank: float) -> None:
    """Move the slider "Show top", and wait for its tiles."""
    page.locator("#top").fill(str(stop))
    until(page, f"attention?.includes('min_rank={min_rank:.3f}&')")


def changed_answer(page: Page, change: Callable[[dict[str, Any]], None]) -> None:
    """Reload the page, with answers changed."""

    def answer(route: Route) -> None:
        response = route.fetch()
        body = response.json()
        change(body)
        route.fulfill(response=response, json=body)

    page.route(re.compile(r"/api/images/[^/]+$"), answer)
    page.reload()
    ready(page)
