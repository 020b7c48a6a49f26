"""The map of the package."""

from __future__ import annotations

import re
from pathlib import Path

from ips import advice


def test_every_module_is_on_the_map() -> None:
    assert advice.__doc__ is not None
    assert advice.__file__ is not None
    modules = {path.name for path in Path(advice.__file__).parent.glob("*.py")}
    assert set(re.findall(r"^    (\w+\.py) ", advice.__doc__, re.M)) == modules - {"__init__.py"}
