"""A library of images and its app for one test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from ips.inputs import Bags
from ips.predictor import Predictor
from ips.viewer import Library, create_app
from ips.viewer.library import Queue

Served = tuple[FastAPI, dict[str, dict[str, Any]]]


def single(paths: Sequence[Path]) -> Bags:
    """A bag for each image."""
    return {str(path): [str(path)] for path in paths}


@contextmanager
def opened(
    predictor: Predictor, run: Path, shown: Sequence[Path] | Bags, **options: Any
) -> Iterator[tuple[Library, FastAPI]]:
    bags = shown if isinstance(shown, dict) else single(shown)
    images = Library(predictor, run, bags, **options)
    try:
        yield images, create_app(images, token="token")
    finally:
        images.close()


def settled(images: Library) -> dict[str, dict[str, Any]]:
    """The rows of the list by name, after all images are predicted."""
    images.set_queue(Queue(all=True))
    with images._changed:
        done = images._changed.wait_for(
            lambda: all(e.state in ("ready", "failed") for e in images.entries.values()), 60
        )
    assert done
    return {row["name"]: row for row in images.rows()[1]}
