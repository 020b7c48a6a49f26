"""What this installation consists of, what is missing, and the command that brings it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from ips._version import __version__
from ips.errors import ConfigError

DISTRIBUTION = "iterative-patch-selection"

_LITTLE_DISK = 5 * 2**30
_LITTLE_MEMORY = 4 * 2**30
_NOT_LISTED = ("all", "dev", "docs")  # the sum of others, and those for developers
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,-]+)\])?([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"])?")
# Compressions that slides and large TIFFs use, by the name of the codec in imagecodecs.
_CODECS = {"JPEG8": "JPEG", "JPEG2K": "JPEG 2000", "LZW": "LZW", "ZSTD": "Zstandard"}


@dataclass(frozen=True)
class Finding:
    """A fact about this installation.

    Attributes:
        topic: heading that it belongs to.
        name: what it is about.
        value: what was found.
        remedy: what to do; None if nothing is wrong.
        needed: whether `ips` cannot do its main job without the remedy.
    """

    topic: str
    name: str
    value: str
    remedy: str | None = None
    needed: bool = False


def examine() -> Iterator[Finding]:
    """Look at versions, devices, readers of images, extras, memory and disk."""
    yield Finding("versions", "ips", __version__)
    yield Finding("versions", "Python", f"{platform.python_version()}, {sys.executable}")
    yield Finding("versions", "system", platform.platform())
    yield from _packages()
    yield from _devices()
    yield from _readers()
    yield from _resources()


def _packages() -> Iterator[Finding]:
    """The declared requirements: their versions, and the extras that lack some."""
    try:
        declared = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        remedy = "pip install '.[all]' in the folder of the source code"
        yield Finding("versions", "packages", "ips is not installed, only imported", remedy)
        return
    extras: dict[str, list[str]] = {}
    for line in declared:
        match = _REQUIREMENT.match(line)
        assert match is not None
        name, _, limits, extra = match.groups()
        if name == DISTRIBUTION or extra in _NOT_LISTED:
            continue
        if extra:
            extras.setdefault(extra, []).append(name)
        elif (found := _version(name)) is None:
            remedy = f"pip install '{name}{limits.strip()}'"
            yield Finding("versions", name, "not installed", remedy, needed=True)
        else:
            yield Finding("versions", name, found)
    for extra, names in extras.items():
        missing = [name for name in names if _version(name) is None]
        if missing:
            remedy = f"pip install '{DISTRIBUTION}[{extra}]'"
            yield Finding("extras", extra, f"without {', '.join(missing)}", remedy)
        else:
            yield Finding("extras", extra, ", ".join(f"{name} {_version(name)}" for name in names))


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _devices() -> Iterator[Finding]:
    """Processors and graphics processors that torch can use."""
    import torch

    from ips.devices import VARIABLE, pick_device

    threads = torch.get_num_threads()
    yield Finding("devices", "CPU", f"{os.cpu_count()} cores, {threads} threads of torch")
    for number in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(number)
        memory = found.total_memory / 2**30
        yield Finding("devices", f"cuda:{number}", f"{found.name}, {memory:.0f} GB")
    if torch.version.cuda is not None and not torch.cuda.is_available():
        remedy = "check the driver with nvidia-smi, or install the CPU build of torch"
        value = f"torch was built for CUDA {torch.version.cuda}, but finds no GPU"
        yield Finding("devices", "cuda", value, remedy)
    if torch.backends.mps.is_available():
        yield Finding("devices", "mps", "GPU of an Apple processor")
    try:
        yield Finding("devices", "in use", str(pick_device()))
    except ConfigError as error:
        yield Finding("devices", "in use", str(error), f"set {VARIABLE}=auto, or leave it out")


def _readers() -> Iterator[Finding]:
    """Whether the libraries that decode images load."""
    import imagecodecs

    for codec, name in _CODECS.items():
        if not getattr(imagecodecs, codec).available:
            remedy = "pip install --force-reinstall imagecodecs"
            yield Finding("image files", name, "cannot be decoded", remedy)
    yield Finding("image files", "TIFF, SVS", f"tifffile {version('tifffile')}")
    yield Finding("image files", "PNG, JPEG, WebP", f"Pillow {version('pillow')}")
    try:
        library = import_module("openslide").__library_version__
    except (ImportError, OSError) as error:
        reason = str(error).partition("\n")[0]
        remedy = f"pip install '{DISTRIBUTION}[slides]'"
        yield Finding("image files", "NDPI, MRXS and others", f"no OpenSlide ({reason})", remedy)
    else:
        yield Finding("image files", "NDPI, MRXS and others", f"OpenSlide {library}")


def _resources() -> Iterator[Finding]:
    """Memory, and space on the disks of the working folder and of temporary files."""
    from ips.advice.cost import available_bytes

    if (memory := available_bytes()) is not None:
        remedy = None
        if memory < _LITTLE_MEMORY:
            remedy = "set select.load=lazy and a small train.batch"
        yield Finding("resources", "memory", f"{memory / 2**30:.1f} GB", remedy)
    for name, folder in (("disk", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free
        remedy = None
        if free < _LITTLE_DISK:
            remedy = "make room, or work on another disk"
            remedy += " (TMPDIR sets the folder)" if name != "disk" else ""
        yield Finding("resources", name, f"{free / 2**30:.1f} GB free in {folder}", remedy)
