from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Page faults of ten allocations of 64 MB, each freed before the next.
SCRIPT = """
import resource
import sys

import numpy as np

from ips.cli.allocator import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()


def allocate():
    np.ones(2**26, dtype=np.uint8)


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


allocate()
before = page_faults()
for _ in range(10):
    allocate()
print(page_faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a setting of glibc")
def test_freed_memory_is_reused_without_page_faults() -> None:
    default, kept = (
        int(
            subprocess.run(
                [sys.executable, "-c", SCRIPT, mode], capture_output=True, check=True, text=True
            ).stdout
        )
        for mode in ("default", "keep")
    )
    # 64 MB are at least 32 pages, even of 2 MB each.
    assert kept < 32 <= default // 10
