from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tifffile
import torch
from PIL import Image

from ips.config_io import parse_config
from ips.loading import load
from ips.predictor import Predictor
from ips.training import build_model
from ips.training.folder import save_model
from ips.viewer import find_images
from tests.viewer.browsing import CHROMIUM, ready, served_by_command
from tests.viewer.opening import Served, opened, settled
from tests.viewer.viewer_files import CONFIG, NASTY, picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with an untrained model whose attention is uneven."""
    folder = tmp_path_factory.mktemp("viewer") / "run"
    folder.mkdir()
    config = parse_config(CONFIG, source="test")
    torch.manual_seed(0)
    net = build_model(config)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(3)  # otherwise its attention would be nearly even
    save_model(net, config, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a PNG, a TIFF with resolution and annotations, a nasty name, a damaged file."""
    folder = tmp_path_factory.mktemp("images")
    Image.fromarray(picture(700, 500)).save(folder / "a.png")
    tifffile.imwrite(
        folder / "b.tif",
        picture(600, 900, seed=1),
        tile=(128, 128),
        resolution=(40000, 40000),  # 0.25 micrometres a pixel
        resolutionunit="CENTIMETER",
    )
    (folder / "b.geojson").write_text(
        '{"type": "Feature", "properties": {"name": "here"}, "geometry": '
        '{"type": "Polygon", "coordinates": [[[50, 60], [200, 60], [200, 300], [50, 60]]]}}'
    )
    Image.fromarray(picture(260, 260, seed=2)).save(folder / f"c {NASTY}.png")
    (folder / "d.png").write_bytes(b"\x89PNG\r\n\x1a\n and then nothing that is a picture")
    (folder / "secret.txt").write_text("SECRET")
    return folder


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return load(run)


@pytest.fixture(scope="module")
def served(predictor: Predictor, run: Path, images: Path) -> Iterator[Served]:
    with opened(predictor, run, find_images([images], predictor.config)) as (all_of_them, app):
        all_of_them.start()
        yield app, settled(all_of_them)


@pytest.fixture(scope="module")
def address(run: Path, images: Path) -> Iterator[str]:
    """Address of the page, served by the command."""
    with served_by_command(run, images) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the whole session: while it runs, no other test can run an event loop.
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here")
    with sync_api.sync_playwright() as playwright:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        with playwright.chromium.launch(executable_path=CHROMIUM, args=options) as browser:
            yield browser


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """The page with the first image predicted; the console must stay empty."""
    with browser.new_context(
        viewport={"width": 1280, "height": 720}, reduced_motion="reduce"
    ) as context:
        page = context.new_page()
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        page.goto(address)
        ready(page)
        yield page
        assert messages == []
