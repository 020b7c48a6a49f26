"""`ips recipes`."""

from __future__ import annotations

import yaml

from tests.command import Outcome


def test_recipes_are_listed_and_shown() -> None:
    assert "megapixel-mnist" in Outcome("recipes").out
    shown = yaml.safe_load(Outcome("recipes", "show", "megapixel-mnist", "--scale", "paper").out)
    assert shown["select"] | {"keep": 100, "chunk": 100} == shown["select"]
    assert shown["data"]["side"] == 1500
