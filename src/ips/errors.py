"""Every error that a user's input can cause, as one tree, and the check for optional packages.

    IPSError
    ├── ConfigError          a setting that is unknown, out of range or contradicts another
    ├── ImageError           an image that is missing, damaged or of an unsupported format
    ├── PatchError           a grid or feature file that does not yield the requested patches
    ├── DataError            labels, tables and data folders that do not fit together
    ├── RunError             a run folder that is missing, incomplete or not created by ips
    └── MissingPackageError  an optional package that is not installed

Each message is one sentence that names the file, the value and the remedy. The command line
prints it and exits with code 1; ``--debug`` shows the traceback instead.
"""

from __future__ import annotations

from importlib.util import find_spec

# Import name of each optional package, and the extra in pyproject.toml that installs it.
_EXTRAS = {
    "huggingface_hub": "train",
    "jinja2": "train",
    "kornia": "train",
    "lightning": "train",
    "matplotlib": "train",
    "rich": "train",
    "scipy": "train",
    "skimage": "train",
    "tensorboard": "train",
    "torchmetrics": "train",
    "typer": "train",
    "openslide": "slides",
    "fastapi": "viewer",
    "uvicorn": "viewer",
    "xstatic": "viewer",
    "mlxtend": "demo",
    "timm": "timm",
}


class IPSError(Exception):
    """An error caused by the user's input, with a message for that user."""


class ConfigError(IPSError):
    """A setting that is unknown, out of range or contradicts another."""


class ImageError(IPSError):
    """An image that is missing, damaged or of an unsupported format."""


class PatchError(IPSError):
    """A grid or a feature file that does not yield the requested patches."""


class DataError(IPSError):
    """Labels, tables and data folders that do not fit together."""


class RunError(IPSError):
    """A run folder that is missing, incomplete or not created by ips."""


class MissingPackageError(IPSError, ImportError):
    """An optional package that is not installed."""


def require(*packages: str) -> None:
    """Raise `MissingPackageError` unless these optional packages, by import name, are installed.

    >>> require("rich")
    """
    for package in packages:
        if find_spec(package) is None:
            raise MissingPackageError(
                f"the package {package} is not installed: "
                f"pip install 'iterative-patch-selection[{_EXTRAS[package]}]'"
            )
