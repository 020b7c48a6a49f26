"""The `ips` command. Heavy imports live inside the commands, so that `--help` is instant."""

import sys

from ips.errors import MissingPackageError, require

try:
    require("typer", "rich")
except MissingPackageError as error:
    sys.exit(f"ips: {error}")

from ips.cli.app import app, main

__all__ = ["app", "main"]
