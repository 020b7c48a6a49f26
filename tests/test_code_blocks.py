"""The code blocks of README and docs/ run, at tiny size: commands, files and programs.

A block below a comment such as ``<!-- needs: hours -->`` is not run. Its commands are compared with
the command line in `test_docs.py`, and its programs are compiled.
"""

from __future__ import annotations

import csv
import re
import shlex
import shutil
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from ips.config_io import parse_config
from tests.command import Outcome

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
LANGUAGES = {"sh", "python", "yaml", "csv", "console", "text"}
NEEDS = {"GPU", "data", "hours", "hub", "machines", "model", "slides"}
SMALL_OPTIONS = {
    "data megapixel-mnist": ["--train", "5", "--test", "5", "--side", "200"],
    "data road-signs": ["--train", "0", "--test", "2"],
    "data tissue-slides": ["--count", "4", "--side", "1024"],
    "init": ["--minutes", "1"],
    "pretrain": [
        *("--epochs", "1", "--batch", "4", "--patches-per-slide", "2", "--width", "16"),
        *("--stages", "1", "--hidden", "8", "--projection", "4"),
    ],
}
SMALL_SETTINGS = {
    "megapixel-mnist": ["data.side=200", "data.train=8", "data.test=4", "data.validation=4"],
    "road-signs": ["data.train=4", "data.test=4", "data.validation=4"],
    "table": ["encoder.width=8", "encoder.stages=1"],
}
# Run once, before all pages; several pages show these commands.
SHARED = [
    "ips data megapixel-mnist data/digits --side 1000 --png 4",
    "ips train megapixel-mnist --run runs/digits",
    "ips init slides.csv",
    "ips check slides.yaml",
    "ips train slides.yaml --run runs/slides",
]


@dataclass(frozen=True)
class Block:
    """A code block, and what it needs beside an installation."""

    needs: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """Its commands of `ips`, without comments; `ips view` serves until it is interrupted."""
        if self.language != "sh":
            return []
        lines = self.text.replace("\\\n", " ").splitlines()
        lines = [re.sub(r"\s+#.*", "", line).strip() for line in lines]
        return [line for line in lines if re.match(r"ips (?!view\b)", line)]


def read_blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    pattern = r"^(?:<!-- needs: (\w+) -->\n)?```(.*)\n((?:.*\n)*?)```$"
    return [Block(*found) for found in re.findall(pattern, text, flags=re.MULTILINE)]


def is_runnable(page: Path) -> bool:
    blocks = [block for block in read_blocks(page) if not block.needs]
    return any(block.commands or block.language == "python" for block in blocks)


RUNNABLE = [page for page in PAGES if is_runnable(page)]


def run(line: str) -> None:
    """Run a command of a page at tiny size, and check the files that it writes."""
    command, _, target = line.partition(" > ")
    words = shlex.split(command)[1:]
    small = [*words]
    if words[0] == "train":
        settings = [*SMALL_SETTINGS[kind_of_data(words[1])], "train.epochs=1"]
        small += [word for setting in settings for word in ("--set", setting)]
    for name, options in SMALL_OPTIONS.items():
        if " ".join(words).startswith(f"{name} "):
            small += options
    outcome = Outcome(*small)
    assert outcome.code == 0, f"{line}\n{outcome.out}{outcome.err}"
    if target:
        Path(shlex.split(target)[0]).write_text(outcome.out, encoding="utf-8")
    for pattern in output_files(words):
        assert list(Path().glob(pattern)), f"{line}: there is no {pattern}"


def kind_of_data(recipe: str) -> str:
    if not recipe.endswith(".yaml"):
        return recipe
    return str(yaml.safe_load(Path(recipe).read_text())["data"]["kind"])


def output_files(words: list[str]) -> list[str]:
    options = dict(pairwise(words))
    match words:
        case ["init", place, *_]:
            return [f"{Path(place).stem}.yaml"]
        case ["train", *_]:
            return [f"{options['--run']}/{name}" for name in ("test.json", "figures/attention.png")]
        case ["pretrain", *_]:
            return [f"{options['--run']}/encoder.safetensors"]
        case ["predict", *_] if "--figures" in options:
            return [f"{options['--figures']}/*-attention.png"]
        case ["predict", *_] if "--csv" in options:
            return [options["--csv"]]
        case ["evaluate", folder, *_] if "--data" in options:
            return [f"{folder}/evaluations/*/scores.json"]
        case ["explain", *_]:
            return [f"{options['--out']}/*{end}" for end in ("-overlay.png", ".geojson")]
        case ["report", folder, *_]:
            return [f"{folder}/report.html"]
        case ["slides", "tissue", *_]:
            return [f"{options['--out']}/thumbnails/*.png"]
        case ["slides", "features", *_]:
            return [f"{options['--out']}/*.h5"]
        case _:
            return []


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pages share: images, a table of them, and two trained models."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "slides").mkdir()
    noise = np.random.default_rng(0)
    for name in "abcd":
        pixels = noise.integers(0, 256, (200, 150, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"slides/{name}.png")
    table = next(block.text for block in read_blocks(PAGES[0]) if block.language == "csv")
    for name in ("slides.csv", "hospital-b.csv"):
        (folder / name).write_text(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for line in SHARED:
            run(line)
    return folder


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_the_page_runs(
    page: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(home, tmp_path / "home"))
    names: dict[str, object] = {}
    for block in read_blocks(page):
        if block.needs:
            continue
        if block.language == "python":
            exec(compile(block.text, page.name, "exec"), names)
        for line in block.commands:
            if line not in SHARED:
                run(line)


def test_pages_show_the_shared_commands() -> None:
    shown = {line for page in PAGES for block in read_blocks(page) for line in block.commands}
    assert set(SHARED) <= shown
    assert {"README", "index", "features", "pytorch", "own-images"} <= {p.stem for p in RUNNABLE}


@BY_PAGE
def test_blocks_are_well_formed(page: Path) -> None:
    blocks = read_blocks(page)
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(fences) == 2 * len(blocks), "a fence is indented or not closed"
    for block in blocks:
        assert block.language in LANGUAGES, f"{block.language!r} of {block.text[:40]!r}"
        assert block.needs in NEEDS | {""}
        if block.language == "python":
            compile(block.text, page.name, "exec")
        elif block.language == "csv":
            assert len({len(row) for row in csv.reader(block.text.splitlines())}) == 1
        elif block.language == "yaml":
            task = {"tasks": {"tumor": {"kind": "binary"}}}
            parse_config(task | yaml.safe_load(block.text), source=page.name)
