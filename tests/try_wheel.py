"""Install the wheel of a folder into a new environment, and predict with a stored model.

    python -m tests.try_wheel dist

The dependencies are those of the environment that runs this, through a ``.pth`` file: an
installation of torch takes minutes. The package itself, its commands and its data files come from
the wheel alone, because the editable installation is not visible through such a file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import numpy as np
from PIL import Image

SAVED = Path(__file__).parent / "fixtures" / "shared-1"


def run(*words: str | Path, folder: Path) -> str:
    """What a command prints, away from the source code."""
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def main(dist: Path) -> None:
    """Try the wheel that is in ``dist``."""
    wheels, archives = list(dist.glob("*.whl")), list(dist.glob("*.tar.gz"))
    assert len(wheels) == len(archives) == 1, f"{dist}: expected one wheel and one sdist"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        venv.create(folder / "env", with_pip=True)
        python = folder / "env/bin/python"
        paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = Path(run(python, "-c", paths, folder=folder).strip())
        here = run(sys.executable, "-c", paths, folder=folder).strip()
        (site / "dependencies.pth").write_text(here + "\n")
        install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
        run(python, *install, wheels[0].resolve(), folder=folder)
        found = Path(run(python, "-c", "import ips; print(ips.__file__)", folder=folder).strip())
        assert site.resolve() in found.resolve().parents, f"{found}: not from the wheel"
        assert (found.parent / "py.typed").is_file()
        ips = folder / "env/bin/ips"
        assert "megapixel-mnist" in run(ips, "recipes", folder=folder)
        noise = np.random.default_rng(0).integers(0, 256, (200, 200), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "image.png")
        answers = json.loads(
            run(ips, "predict", SAVED.resolve(), "image.png", "--json", folder=folder)
        )
        tasks = answers[0]["tasks"]
        assert set(tasks) == {"majority", "multi"}, answers
        print(f"{wheels[0].name}: installed, and predicts {tasks['majority']['answer']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
