from __future__ import annotations

import pytest

from ips.explain.figures.page import Page


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Page]:
    """What would have been saved."""
    saved: list[Page] = []
    monkeypatch.setattr(Page, "save", lambda page, path: saved.append(page))
    return saved
