"""HTML from parts: whatever is not HTML already is escaped when it is put in.

The page needs nothing from elsewhere and runs no script; its policy forbids both, and any style
but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

_VOID = {"img", "meta"}


class Html(str):
    """Text that is HTML; any other string is taken for what a person wrote."""

    __slots__ = ()


def el(tag: str, /, *children: str, **attributes: str | float | None) -> Html:
    """An element; ``class_`` stands for class and ``view_box`` for viewBox, None for no attribute.

    >>> el("td", "<b>", el("i", "x"), class_="n")
    '<td class="n">&lt;b&gt;<i>x</i></td>'
    """
    words = [tag]
    for key, value in attributes.items():
        if value is not None:
            text = f"{value:.5g}" if isinstance(value, float) else str(value)
            words.append(f'{_attribute(key)}="{escape(text)}"')
    start = f"<{' '.join(words)}>"
    if tag in _VOID:
        return Html(start)
    return Html(f"{start}{join(children)}</{tag}>")


def _attribute(key: str) -> str:
    return "viewBox" if key == "view_box" else key.rstrip("_").replace("_", "-")


def join(parts: Iterable[str]) -> Html:
    """Parts one after the other, escaped where they are not HTML."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts))


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    class_: str | None = None,
) -> Html:
    """A table whose first column names its rows; it scrolls where the screen is too narrow."""
    head = el("tr", *(el("th", column, scope="col") for column in columns))
    body = [
        el("tr", el("th", first, scope="row"), *(el("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    whole = el(
        "table", el("caption", caption), el("thead", head), el("tbody", *body), class_=class_
    )
    return scrolling(whole, caption)


def scrolling(content: Html, label: str) -> Html:
    """Content that may be wider than the screen, to be moved with the keyboard too."""
    return el("div", content, class_="wide", tabindex="0", role="region", aria_label=label)


def section(name: str, title: str, *content: str) -> Html:
    """A part of the page that can be linked to."""
    return el("section", el("h2", title), *content, id=name)


def page(title: str, body: Iterable[str]) -> str:
    """The whole document."""
    css = files("ips.explain").joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        el("style", Html(css)),
    )
    return f"<!doctype html>\n{el('html', head, el('body', *body), lang='en')}\n"
