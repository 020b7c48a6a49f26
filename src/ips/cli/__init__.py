"""The `ips` command. Heavy imports are inside the commands, so that `ips --help` is fast."""

import os
import sys

from ips.errors import MissingPackageError, require

try:
    require("typer", "rich")
except MissingPackageError as error:
    sys.exit(f"ips: {error}")

from ips.cli.app import app, main

# Threads of torch sleep while they wait for each other. Spinning, they would take the time of other
# programs and then wait for these: training would take up to twice as long beside any other work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Each module adds its commands to `app`; `ips --help` lists them in the order of these imports.
# isort: off
from ips.cli import own_data, train, predict, pretrain, experiment  # noqa: F401
from ips.cli import recipes, data, slides, bench  # noqa: F401
# isort: on

__all__ = ["app", "main"]
