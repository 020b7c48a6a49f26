"""Another process that has a folder locked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from ips.locks import lock_folder
shard = tuple(map(int, sys.argv[2:])) or None
with lock_folder(Path(sys.argv[1]), option="--run", shard=shard):
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(
    folder: Path, *, shard: tuple[int, int] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the folder locked, or its share of it."""
    command = [sys.executable, "-c", HOLD, str(folder), *map(str, shard or ())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()
