"""A mistake in a command or a config is reported before torch and other large packages load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

_PROGRAM = """
import sys
from ips.cli import main
try:
    main()
except SystemExit as end:
    code = end.code
heavy = {"torch", "lightning", "matplotlib", "scipy", "skimage", "PIL"} & set(sys.modules)
print("loaded:", code, sorted(heavy))
"""

CONFIG: dict[str, Any] = {
    "data": {"kind": "table", "csv": "table.csv"},
    "tasks": {"grade": {"classes": 2}},
}
CASES: dict[str, tuple[list[str], dict[str, Any], int, str]] = {
    "help": (["--help"], {}, 0, "Usage"),
    "help of a command": (["train", "--help"], {}, 0, "--resume"),
    "option": (["train", "config.yaml", "--epoch", "3"], {}, 2, "--epoch"),
    "repeats": (["train", "config.yaml", "--repeats", "2"], {}, 1, "without --folds"),
    "recipe": (["train", "megapixl-mnist"], {}, 1, "did you mean megapixel-mnist?"),
    "file": (["train", "missing.yaml"], {}, 1, "missing.yaml"),
    "key": (["train", "config.yaml"], {"selct": {}}, 1, "did you mean 'select'?"),
    "value": (["train", "config.yaml", "--set", "select.keep=0"], {}, 1, "select.keep=0"),
    "table": (["train", "config.yaml", "--set", "data.csv=no.csv"], {}, 1, "no such table"),
    "column": (["train", "config.yaml", "--set", "data.path=file"], {}, 1, "no column 'file'"),
    "task": (["train", "config.yaml"], {"tasks": {"x": {}}}, 1, "no column 'x'"),
    "check, file": (["check", "missing.yaml"], {}, 1, "missing.yaml"),
    "check, key": (["check", "config.yaml"], {"selct": {}}, 1, "did you mean 'select'?"),
    "check, column": (["check", "config.yaml"], {"tasks": {"x": {}}}, 1, "no column 'x'"),
    "init, file": (["init", "missing"], {}, 1, "missing: there is no such file or folder"),
    "init, kind": (["init", "config.yaml"], {}, 1, "expected a folder of images or a CSV"),
    "init, out": (["init", "table.csv", "--out", "config.yaml"], {}, 1, "exists already"),
    "init, column": (["init", "table.csv", "--label", "x"], {}, 1, "--label x: table.csv has no"),
    "init, key": (["init", "table.csv", "--set", "train.epoch=5"], {}, 1, "mean 'epochs'?"),
    "init, set": (["init", "table.csv", "--set", "train.epochs"], {}, 1, "expected key=value"),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_without_large_packages(case: str, tmp_path: Path) -> None:
    words, changes, code, text = CASES[case]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG | changes))
    (tmp_path / "table.csv").write_text("path,grade\na.png,1\nb.png,0\n")
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == f"loaded: {code} []", done.stderr
    assert text in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr
