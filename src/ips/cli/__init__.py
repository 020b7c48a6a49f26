"""The `ips` command. Heavy imports are inside the commands, so that `ips --help` is fast."""

import os
import sys

from ips.errors import MissingPackageError, require

try:
    require("typer", "rich")
except MissingPackageError as error:
    sys.exit(f"ips: {error}")

from ips.cli.app import app, main

# Threads of torch that wait for each other spin for some microseconds, then sleep. Spinning on,
# they would take the time of other programs and wait for these; sleeping at once, as with
# OMP_WAIT_POLICY=passive, they would wake up late and make small layers half as fast.
os.environ.setdefault("GOMP_SPINCOUNT", "5000")

# Each module adds its commands to `app`; `ips --help` lists them in the order of these imports.
# isort: off
from ips.cli import own_data, train, tune, predict, pretrain, experiment  # noqa: F401
from ips.cli import recipes, data, slides, bench, compare, export, doctor  # noqa: F401
# isort: on

__all__ = ["app", "main"]
