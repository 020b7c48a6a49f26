from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

# Property tests explore at random, except in CI, where every run tries the same examples.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def digit_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache for the session: the embedded digits are parsed once, and no home is touched."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPS_CACHE", str(cache))
        yield cache
