"""All families of files."""

from __future__ import annotations

from fuzz import caches, downloads, features, images, runs, tables
from fuzz.family import Family


def all_families() -> list[Family]:
    """Make the valid files of every family."""
    groups = (images, features, tables, downloads, runs, caches)
    return [family for group in groups for family in group.families()]
