"""What a person types. Heavy imports live inside the commands, so that help comes at once."""

from ips.cli.app import app, main

__all__ = ["app", "main"]
