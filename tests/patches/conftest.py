"""The pictures in every format, which the tests of images write, are for these tests too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "images"))
