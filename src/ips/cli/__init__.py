"""The `ips` command. Heavy imports are inside the commands, so that `ips --help` is fast."""

import sys

from ips.errors import MissingPackageError, require

try:
    require("typer", "rich")
except MissingPackageError as error:
    sys.exit(f"ips: {error}")

from ips.cli.app import app, main

# Each module adds its commands to `app`; `ips --help` lists them in the order of these imports.
# isort: off
from ips.cli import own_data, train, predict, pretrain, experiment  # noqa: F401
from ips.cli import recipes, data, slides, bench  # noqa: F401
# isort: on

__all__ = ["app", "main"]
