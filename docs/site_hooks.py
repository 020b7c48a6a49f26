"""Hooks of the documentation site (`mkdocs.yml`): pages that are made from other files.

- `settings.md` is made from the help of every setting.
- `changelog.md` and `contributing.md` are the files of the project's root folder.
- Files outside of `docs/` that a page links to get a page each, so that such links work on the
  site as they do in the repository, without an address of the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ips.config import AnyDataConfig, Config, TaskConfig

ROOT = Path(__file__).parent.parent
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
_SOURCE = "source/"
_LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from other files."""
    made = {"settings.md": settings_page()}
    for name, page in ROOT_PAGES.items():
        if page != "index.md":
            made[page] = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
    pages = [file.content_string for file in files.documentation_pages()]
    for name in sorted({name for text in [*pages, *made.values()] for name in _LINK.findall(text)}):
        if name not in ROOT_PAGES:
            made[source_page(name)] = source_text(ROOT / name)
    for uri, content in made.items():
        file = File.generated(config, uri, content=content)
        if uri.startswith(_SOURCE):
            file.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links to files of the repository to their pages."""
    del page
    return _LINK.sub(lambda link: f"]({ROOT_PAGES.get(link[1], source_page(link[1]))}", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Choose where names may break, and drop the colons before blocks of code in docstrings."""
    html = re.sub(r"<code>([^<\n]+)</code>", whole_words, html)
    html = re.sub(r"(?<=<td>)[^<\s]{30,}(?=</td>)", breakable, html)
    html = re.sub(r"<td>((?:[^<]|<(?!/td))*)</td>", long_cell, html).replace(" ± ", "\u00a0±\u00a0")
    return re.sub(r"<p>::</p>|(?<=:):(?=</p>)", "", html)


def whole_words(code: re.Match[str]) -> str:
    """Inline code whose names, such as `--run`, do not break at a hyphen."""
    words = re.sub(r"(?<!\S)[^\s-]*-\S{1,32}(?!\S)", r'<span class="whole">\g<0></span>', code[1])
    return f"<code>{words}</code>"


def breakable(name: re.Match[str]) -> str:
    """A long name in a table, which may break after a slash or underscore."""
    return re.sub("[/_]", r"\g<0><wbr>", name[0])


def long_cell(cell: re.Match[str]) -> str:
    """A cell of a table, marked if it has many words."""
    text = re.sub("<[^>]*>", "", cell[1])
    return f'<td class="long">{cell[1]}</td>' if len(text) > 150 else cell[0]


def source_page(name: str) -> str:
    """The page of a file of the repository."""
    return f"{_SOURCE}{name}.md"


def source_text(path: Path) -> str:
    """A file as a page, which the search leaves out."""
    name = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8").rstrip()
    language = _LANGUAGES.get(path.suffix, "text")
    return (
        f"---\nsearch: {{exclude: true}}\n---\n# {path.name}\n\n`{name}`\n\n"
        f"````{language}\n{text}\n````\n"
    )


def settings_page() -> str:
    """Every setting with its default and its help."""
    lines = [
        "# Settings",
        "",
        "A config is a YAML file with these sections. `ips init` writes one for your images,",
        "`ips recipes show NAME` prints a built-in one, and `--set SECTION.KEY=VALUE` changes a",
        "setting on the command line. A `null` is filled in when a training starts, and",
        "`config.yaml` of the run has the value.",
        "",
        "## General",
        *table(general()),
    ]
    for name, field in Config.model_fields.items():
        for heading, section in sections(name, field):
            lines += ["", f"## {heading}", "", f"{section.__doc__}", *table(section.model_fields)]
    return "\n".join(lines) + "\n"


def general() -> dict[str, FieldInfo]:
    """The settings that are in no section."""
    return {k: field for k, field in Config.model_fields.items() if not [*sections(k, field)]}


def sections(name: str, field: FieldInfo) -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections of this name; `data` has one for each kind."""
    if name == "data":
        for section in get_args(get_args(AnyDataConfig)[0]) or get_args(AnyDataConfig):
            yield f"data: {section.model_fields['kind'].default}", section
    elif name == "tasks":
        yield "tasks: NAME", TaskConfig
    elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
        yield name, field.annotation


def table(fields: dict[str, FieldInfo]) -> list[str]:
    """Settings as a table."""
    rows = ["", "| key | default | meaning |", "| --- | --- | --- |"]
    for name, field in fields.items():
        default = "required" if field.is_required() else f"`{shown(field.get_default())}`"
        help = (field.description or "").replace("|", "\\|")
        rows.append(f"| `{name}` | {default} | {help} |")
    return rows


def shown(value: Any) -> str:
    """A default as a config writes it."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"
    )
