"""The pages in docs/ name only files, sections, commands and settings that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel

from ips.cli import app
from ips.config import AnyDataConfig, Config
from ips.experiments import EXPERIMENTS
from ips.recipes import recipe_names

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAPER = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
BY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)

Table = list[list[str]]  # the cells of each row


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@BY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for link in links:
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


# Commands


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every `ips` command on a page, in code blocks and between backticks."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines = [re.sub(r"^(\$ |(torchrun|srun) .*?(?=\bips ))", "", line) for line in lines]
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for line in [*lines, *re.findall(r"`([^`]+)`", text)]:
        if line.startswith("ips "):
            yield shlex.split(line.partition(" > ")[0], comments=True)[1:]


def scripts(page: Path) -> Iterator[list[str]]:
    """The words of every `python` command of this project on a page, in code blocks."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"^(?:\w+=\S+ )*python (.*)$", text, flags=re.MULTILINE):
        yield shlex.split(line, comments=True)


@BY_PAGE
def test_scripts_exist(page: Path) -> None:
    for words in scripts(page):
        if words[0] == "-m":
            path = ROOT / words[1].replace(".", "/")
            path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
        else:
            path = ROOT / words[0]
        assert path.is_file(), f"python {' '.join(words)}: no such script"
        text = path.read_text(encoding="utf-8")
        for word in words[1:]:
            if word.startswith("--"):
                assert f'"{word}"' in text, f"python {' '.join(words)}: no option {word}"


def option_settings(words: list[str]) -> list[str]:
    """The settings after `--set`."""
    return [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--set"]


@cache
def command_line() -> Any:
    return typer.main.get_command(app)  # typer has a click of its own


@BY_PAGE
def test_commands_exist(page: Path) -> None:
    for words in commands(page):
        found = command_line()
        rest = list(words)
        while rest and not rest[0].startswith("-") and hasattr(found, "commands"):
            name = rest.pop(0)
            assert name in found.commands, f"ips {' '.join(words)}: no such command"
            found = found.commands[name]
        options = {text for p in found.params for text in (*p.opts, *p.secondary_opts)}
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= options | {"--help"}, f"ips {' '.join(words)}: no such option"
        match words:
            case ["experiment", name, *_] if name.islower():
                assert name in EXPERIMENTS, f"ips {' '.join(words)}: no such experiment"
            case ["train", name, *_] if name.islower() and "." not in name:
                assert name in recipe_names(), f"ips {' '.join(words)}: no such recipe"


def keys(model: type[BaseModel]) -> set[str]:
    """The dotted keys of the settings of a model."""
    found = set()
    for name, field in model.model_fields.items():
        types: list[Any] = [field.annotation, *get_args(field.annotation)]
        types += get_args(AnyDataConfig) if name == "data" else []
        found.add(name)
        for kind in types:
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                found |= {f"{name}.{key}" for key in keys(kind)}
    return found


@BY_PAGE
def test_settings_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {setting for words in commands(page) for setting in option_settings(words)}
    named |= set(re.findall(r"--set \"?([\w.]+=)", text))
    known = keys(Config)
    assert [one for one in sorted(named) if one.partition("=")[0] not in known] == []


# The page about the paper


def test_settings_and_options_of_the_paper_page_exist() -> None:
    sections = "|".join(name for name in Config.model_fields if name not in ("method", "tasks"))
    settings = set(re.findall(rf"`((?:{sections})\.\w+)[`:]", PAPER))
    assert len(settings) > 8
    assert settings <= keys(Config)
    options = set(re.findall(r"`(--[\w-]+)", PAPER)) - {"--set"}
    assert options
    assert options <= set(all_options(typer.main.get_command(app)))


def all_options(command: Any) -> Iterator[str]:
    """The options of a command and of its subcommands."""
    for parameter in command.params:
        yield from parameter.opts
    for child in getattr(command, "commands", {}).values():
        yield from all_options(child)


def tables() -> Iterator[tuple[str, Table]]:
    """The tables of the page, with the headings of their sections."""
    for part in re.split(r"^## ", PAPER, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line.startswith("| ")]
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
        if rows:
            yield part.splitlines()[0], rows


def test_every_part_of_the_paper_is_listed() -> None:
    rows = {heading: [row[0] for row in table[2:]] for heading, table in tables()}
    assert rows["Tables"] == [f"Table {number}" for number in range(1, 11)]
    assert rows["Figures"] == [f"Figure {number}" for number in range(1, 11)]
    equations = [text for text in rows["Equations and algorithm"] if text.startswith("Eq")]
    bounds = [[int(n) for n in re.findall(r"\d+", text)] for text in equations]
    assert [n for b in bounds for n in range(b[0], b[-1] + 1)] == list(range(1, 9))
    assert "Algorithm 1" in rows["Equations and algorithm"]
    sections = [text.partition(",")[0] for text in rows["Sections"]]
    expected = ["Abstract", "Section 1", "Section 2.1", "Section 2.2", "Section 3", "Section 4"]
    expected += [f"Section 4.{number}" for number in range(1, 6)]
    expected += ["Section 5", "Ethics", *(f"Appendix {letter}" for letter in "ABC")]
    expected += [f"Appendix D.{number}" for number in range(1, 8)]
    expected += ["Appendix E", "Appendix F"]
    assert list(dict.fromkeys(sections)) == expected


def test_every_row_is_complete() -> None:
    for heading, rows in tables():
        assert {len(row) for row in rows} == {len(rows[0])}, heading


def test_every_deviation_is_listed_and_referred_to() -> None:
    listed = [int(n) for n in re.findall(r"^(\d+)\. ", PAPER, flags=re.MULTILINE)]
    assert listed == list(range(1, len(listed) + 1))
    referred: set[int] = set()
    for heading, rows in tables():
        assert rows[0][-1] == "deviations", heading
        for row in rows[2:]:
            for part in filter(None, row[-1].split(", ")):
                first, _, last = part.partition("–")
                referred |= set(range(int(first), int(last or first) + 1))
    assert referred == set(listed)


def test_the_code_of_every_part_exists() -> None:
    named = re.findall(r"\]\(\.\./(src/[^)]+)\) \(((?:`\w+`(?:, )?)+)\)", PAPER)
    assert len(named) > 30
    for path, names in named:
        text = (ROOT / path).read_text(encoding="utf-8")
        for name in re.findall(r"\w+", names):
            assert re.search(rf"\b(def|class) {name}\b", text), f"{path}: no {name}"
