from __future__ import annotations

import pytest
import torch
from hypothesis import settings

settings.register_profile("ips", deadline=None)  # a busy machine is no failure
settings.load_profile("ips")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
