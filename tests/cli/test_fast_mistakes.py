"""A mistake in a command or a config is reported before torch and other large packages load.

One new process answers all commands. There, large packages cannot be imported: an attempt is noted,
so that every command shows what it asked for, whatever came before it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

_PROGRAM = """
import io, json, os, sys, traceback
from contextlib import redirect_stderr, redirect_stdout

HEAVY = {"torch", "lightning", "matplotlib", "scipy", "skimage", "PIL"}
asked = []

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            asked.append(name)
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refusing())
from ips.cli import main

answers = {}
for case, (folder, words) in json.load(sys.stdin).items():
    os.chdir(folder)
    sys.argv = ["ips", *words]
    code, out, err = None, io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code
        except Exception:
            traceback.print_exc()
    answers[case] = [code, sorted(asked), out.getvalue(), err.getvalue()]
    asked.clear()
json.dump(answers, sys.stdout)
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


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Exit code, large packages, stdout and stderr of every command."""
    commands = {}
    for case, (words, changes, *_) in CASES.items():
        folder = tmp_path_factory.mktemp("case")
        (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG | changes))
        (folder / "table.csv").write_text("path,grade\na.png,1\nb.png,0\n")
        commands[case] = str(folder), words
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", CASES)
def test_answers_without_large_packages(case: str, answers: dict[str, list[Any]]) -> None:
    *_, expected, text = CASES[case]
    code, large, out, err = answers[case]
    assert (code, large) == (expected, []), err
    assert text in " ".join((out + err).split())
    assert "Traceback" not in err
