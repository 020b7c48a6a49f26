"""Take the screenshots of the viewer and of a report that the docs show.

    ips data tissue-slides drawn --count 60 --side 1024
    ips train pixels.yaml --run runs/pixels        # pixels.yaml is in docs/slides.md
    ips report runs/pixels
    python docs/screenshots.py runs/pixels drawn/slides --annotations drawn/truth --out shots

It needs Playwright (`pip install playwright`) and Chromium on the search path.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

SIZES = {1280: 720, 1920: 1080, 390: 844}
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@contextmanager
def served(arguments: list[str]) -> Iterator[str]:
    """The address of the viewer, which `ips view` serves meanwhile."""
    command = [sys.executable, "-c", "from ips.cli import main; main()", "view", *arguments]
    process = subprocess.Popen([*command, "--no-browser"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found = re.search(r"http://\S+/", process.stderr.readline())
        assert found is not None, process.stderr.read()
        yield found[0]
    finally:
        process.terminate()
        process.wait()


def open_viewer(page: Page, address: str, *, image: str, zoom: int) -> None:
    """Open an image, wait for its prediction, and zoom in some steps."""
    page.goto(address)
    page.locator("#images li", has_text=image).first.click()
    page.wait_for_selector("#gallery li", timeout=120_000)
    if page.is_enabled("#predict-all"):
        page.click("#predict-all")
    page.wait_for_function(
        "() => document.querySelector('#pause').disabled && "
        "!document.querySelector('#count').textContent.includes('predicted')",
        timeout=600_000,
    )
    for _ in range(zoom):
        page.click("#zoom-in")
        page.wait_for_load_state("networkidle")
    page.wait_for_load_state("networkidle")


def new_page(browser: Browser, width: int, scheme: Literal["light", "dark"]) -> Page:
    """A page of this width, without animations."""
    context = browser.new_context(
        viewport={"width": width, "height": SIZES[width]},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    return context.new_page()


def main() -> None:
    """Take all screenshots."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="Run folder; its report.html is shown, too")
    parser.add_argument("images", help="Images to show, or a CSV of patients")
    parser.add_argument("--annotations", help="As for `ips view`")
    parser.add_argument("--labels", help="As for `ips view`")
    parser.add_argument("--image", default="", help="Part of the name of the image to open")
    parser.add_argument("--zoom", type=int, default=0, help="How often to zoom in")
    parser.add_argument("--out", type=Path, default=Path("shots"), help="Folder of the pictures")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    options = [[f"--{name}", vars(args)[name]] for name in ("annotations", "labels")]
    arguments = [str(args.run), args.images, *(w for o in options if o[1] for w in o)]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    report = (args.run / "report.html").resolve()
    with (
        served(arguments) as address,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=flags) as browser,
    ):
        for width in SIZES:
            for scheme in SCHEMES:
                page = new_page(browser, width, scheme)
                open_viewer(page, address, image=args.image, zoom=args.zoom)
                page.screenshot(path=args.out / f"viewer-{width}-{scheme}.png", full_page=True)
                page.context.close()
                if report.is_file():
                    page = new_page(browser, width, scheme)
                    page.goto(report.as_uri())
                    page.screenshot(path=args.out / f"report-{width}-{scheme}.png", full_page=True)
                    page.context.close()


if __name__ == "__main__":
    main()
