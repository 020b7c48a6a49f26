"""Every section of the README runs, at tiny size: its commands, its files and its programs."""

from __future__ import annotations

import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.command import Outcome

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
SMALL_OPTIONS = {
    "data megapixel-mnist": ["--train", "5", "--test", "5", "--side", "200"],
    "data road-signs": ["--train", "4", "--test", "4"],
    "data tissue-slides": ["--count", "4", "--side", "1024"],
    "pretrain": [
        *("--epochs", "1", "--batch", "4", "--patches-per-slide", "2", "--width", "16"),
        *("--stages", "1", "--hidden", "8", "--projection", "4"),
    ],
}
SMALL_SETTINGS = {
    "megapixel-mnist": ["data.side=200", "data.train=8", "data.test=4"],
    "road-signs": ["data.train=4", "data.test=4"],
    "table": ["encoder.width=8", "encoder.stages=1"],
}

Block = tuple[str, str]  # language and text


def read_sections() -> dict[str, list[Block]]:
    """The code blocks of each section, by its heading."""
    parts = re.split(r"^## (.*)$", README, flags=re.MULTILINE)
    return {
        heading: re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL)
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def read_commands(blocks: list[Block]) -> list[str]:
    lines = [line for language, text in blocks if language == "sh" for line in text.splitlines()]
    # `ips view` serves a page until it is interrupted.
    return [line for line in lines if line.startswith("ips ") and not line.startswith("ips view")]


SECTIONS = read_sections()
RUNNABLE = [
    heading
    for heading, blocks in SECTIONS.items()
    if read_commands(blocks) or any(language == "python" for language, _ in blocks)
]


def run(line: str) -> None:
    """Run a command of the README at tiny size, and check the files that it writes."""
    command, _, target = line.partition(" > ")
    words = shlex.split(command, comments=True)[1:]
    small = [*words]
    if words[0] == "train":
        settings = [*SMALL_SETTINGS[kind_of_data(words[1])], "train.epochs=1"]
        small += [word for setting in settings for word in ("--set", setting)]
    for name, options in SMALL_OPTIONS.items():
        if " ".join(words).startswith(name):
            small += options
    outcome = Outcome(*small)
    assert outcome.code == 0, f"{line}\n{outcome.out}{outcome.err}"
    if target:
        Path(shlex.split(target, comments=True)[0]).write_text(outcome.out, encoding="utf-8")
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
    """A folder with what sections share: images, megapixel MNIST, and a model trained on it."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "slides").mkdir()
    noise = np.random.default_rng(0)
    for name in "abcd":
        pixels = noise.integers(0, 256, (200, 150, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"slides/{name}.png")
    lines = [line for blocks in SECTIONS.values() for line in read_commands(blocks)]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for start in ("ips data megapixel-mnist", "ips train megapixel-mnist"):
            run(next(line for line in lines if line.startswith(start)))
    return folder


@pytest.mark.parametrize("heading", RUNNABLE)
def test_the_section_runs(
    heading: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = SECTIONS[heading]
    monkeypatch.chdir(shutil.copytree(home, tmp_path / "home"))
    texts = dict(reversed(blocks))  # the first block of each language
    if "csv" in texts:
        name = re.search(r"^ips init (\S+\.csv)", texts["sh"], flags=re.MULTILINE)
        assert name, "a CSV file is shown but not used"
        Path(name[1]).write_text(texts["csv"])
    for line in read_commands(blocks):
        folder = re.search(r"^ips train .*--run (\S+)", line)
        if folder is not None and Path(folder[1]).exists():  # trained by the fixture
            shutil.rmtree(folder[1])
        run(line)
    for language, text in blocks:
        if language == "python":
            exec(compile(text, "README.md", "exec"), {})


def test_most_sections_are_runnable() -> None:
    assert len(RUNNABLE) >= 5
    assert sum(len(read_commands(blocks)) for blocks in SECTIONS.values()) >= 17


def test_the_readme_names_only_make_targets_that_exist() -> None:
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    targets = set(re.findall(r"^(\w+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
    assert {"demo", "test"} <= named <= targets
