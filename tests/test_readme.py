"""The README's commands and programs, run in order as a newcomer would, at tiny size."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from ips.cli import app

README = Path(__file__).parent.parent / "README.md"
SMALLER_OPTIONS = {
    "data megapixel-mnist": ["--train", "5", "--test", "5", "--side", "200"],
    "data tissue-slides": ["--count", "4", "--side", "1024"],
    "pretrain data/drawn/slides.csv": [
        *("--epochs", "1", "--batch", "4", "--patches-per-slide", "2", "--width", "16"),
        *("--stages", "1", "--hidden", "8", "--projection", "4"),
    ],
}
SMALLER = {
    "megapixel-mnist": ["data.side=200", "data.train=8", "data.test=4", "train.epochs=1"],
    "mine.yaml": ["data.side=200", "data.train=8", "data.test=4", "train.epochs=1"],
    "slides.yaml": ["train.epochs=1", "encoder.width=8", "encoder.stages=1"],
}


def blocks() -> list[tuple[str, str]]:
    return re.findall(r"```(\w+)\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def run(line: str) -> None:
    command, _, target = line.partition(" > ")
    words = shlex.split(command, comments=True)[1:]
    if words[0] == "train":
        words += [word for setting in SMALLER[words[1]] for word in ("--set", setting)]
    words += SMALLER_OPTIONS.get(" ".join(words[:2]), [])
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, f"{line}\n{result.output}"
    if target:
        Path(shlex.split(target, comments=True)[0]).write_text(result.stdout, encoding="utf-8")


def test_everything_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slides").mkdir()
    noise = np.random.default_rng(0)
    for name in "abcd":
        Image.fromarray(noise.integers(0, 256, (200, 150, 3), dtype=np.uint8)).save(
            f"slides/{name}.png"
        )
    ran = 0
    for language, text in blocks():
        if language == "csv":
            Path("slides.csv").write_text(text)
        elif language == "yaml":
            Path("slides.yaml").write_text(text)
        elif language == "python":
            exec(compile(text, "README.md", "exec"), {})
        else:
            for line in text.splitlines():
                if line.startswith("ips ") and not line.startswith("ips view"):  # which stays
                    run(line)
                    ran += 1
    assert ran >= 17
    assert Path("runs/digits/figures/attention.png").is_file()
    assert Path("out/0-attention.png").is_file()
    assert Path("out/0.geojson").is_file()
    assert Path("runs/digits/report.html").is_file()
    assert len(list(Path("data/features").glob("*.h5"))) == 4


def test_the_readme_names_only_make_targets_that_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    targets = set(re.findall(r"^(\w+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"^make (\w+)", README.read_text(), flags=re.MULTILINE))
    assert {"demo", "test"} <= named <= targets
