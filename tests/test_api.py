from __future__ import annotations

import subprocess
import sys

import ips


def test_the_public_names_are_these() -> None:
    assert sorted(ips.__all__) == [
        "IPSError",
        "IPSNet",
        "MemoryPatches",
        "PatchSource",
        "Prediction",
        "Predictor",
        "__version__",
        "api",
        "load",
        "nn",
        "open_image",
        "open_patches",
        "selection",
    ]
    for name in ips.__all__:
        assert getattr(ips, name) is not None
    assert dir(ips) == ips.__all__


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, ips.cli; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_core_runs_without_lightning() -> None:
    use = "ips.IPSNet, ips.open_patches, ips.selection, ips.nn"
    code = f"import sys, ips; {use}; print('lightning' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
