"""Predict a slide of 16 gigapixels, measure the memory, interrupt it once and resume it.

    python benchmarks/predict_gigapixel.py                       # in runs/gigapixel
    python benchmarks/predict_gigapixel.py --side 16384          # a smaller slide, to try it

Missing files are created: the slide, and a small model trained on a few small slides for one epoch
(its predictions mean nothing, its cost does). Linux only, because it reads /proc.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from make_gigapixel import write_slide

IPS = [sys.executable, "-m", "ips"]
CONFIG = """\
data: {kind: table, csv: slides.csv}
patches: {size: 256}
encoder: {name: thin-resnet, stages: 2, width: 16, norm: true}
select: {keep: 64, chunk: 256, load: lazy}
train: {epochs: 1, batch: 4, lr: 0.001, warmup: 0}
tasks:
  kind: {kind: binary}
"""


@dataclass(frozen=True)
class Measured:
    """Exit code, seconds and peak resident bytes of a command."""

    code: int
    seconds: float
    peak: int


def measure(command: list[str], *, output: Path, stop_after: float | None = None) -> Measured:
    """Run a command; send Ctrl-C after ``stop_after`` seconds."""
    started, peak, stopped = time.monotonic(), 0, False
    # A process in the background may ignore Ctrl-C; the command must not inherit that.
    accept_interrupt = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    with (
        output.open("w") as file,
        subprocess.Popen(command, stdout=file, preexec_fn=accept_interrupt) as process,
    ):
        while process.poll() is None:
            peak = max(peak, _peak(process.pid))
            if stop_after is not None and not stopped and time.monotonic() - started > stop_after:
                process.send_signal(signal.SIGINT)
                stopped = True
            time.sleep(0.1)
    return Measured(process.returncode, time.monotonic() - started, peak)


def _peak(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:  # it has just exited
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def make_model(folder: Path) -> Path:
    """Run folder of a model for slides, trained if it is missing."""
    run = folder / "run"
    if not (run / "model.safetensors").exists():
        rows = ["path,kind,split"]
        for number in range(8):
            write_slide(folder / f"small-{number}.tif", side=2048, seed=number + 1)
            split = "train" if number < 6 else "test"
            rows.append(f"small-{number}.tif,{number % 2},{split}")
        (folder / "slides.csv").write_text("\n".join(rows) + "\n")
        config = folder / "slides.yaml"
        config.write_text(CONFIG.replace("slides.csv", str(folder / "slides.csv")))
        subprocess.run([*IPS, "train", str(config), "--run", str(run), "--resume"], check=True)
    return run


def make_parser(description: str) -> argparse.ArgumentParser:
    """Options that this script and ``pan_viewer.py`` share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--folder", type=Path, default=Path("runs/gigapixel"))
    parser.add_argument("--side", type=int, default=131_072, help="Side of the slide in pixels")
    return parser


def main() -> None:
    parser = make_parser("Predict 16 gigapixels and measure the memory.")
    parser.add_argument(
        "--stop-after", type=float, default=60, help="Seconds until the interruption"
    )
    args = parser.parse_args()
    folder: Path = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    run = make_model(folder)
    slide = folder / f"slide-{args.side}.tif"
    if not slide.exists():
        print(f"writing {slide}")
        write_slide(slide, side=args.side)
    shutil.rmtree(run / "unfinished", ignore_errors=True)  # from an earlier measurement
    command = [*IPS, "predict", str(run), str(slide), "--json"]
    whole = measure(command, output=folder / "whole.json")
    first = measure(command, output=folder / "first.json", stop_after=args.stop_after)
    kept = sum(path.stat().st_size for path in (run / "unfinished").glob("*"))
    second = measure(command, output=folder / "resumed.json")
    same = (folder / "whole.json").read_text() == (folder / "resumed.json").read_text()
    found = {
        "side": args.side,
        "patches": json.loads((folder / "whole.json").read_text())[0]["patches"],
        "whole": asdict(whole),
        "interrupted": asdict(first),
        "bytes kept": kept,
        "resumed": asdict(second),
        "same prediction": same,
    }
    (folder / "gigapixel.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    if whole.code or second.code or first.code != 130 or not same:
        sys.exit("failed: expected the exit codes 0, 130 and 0, and two equal predictions")


if __name__ == "__main__":
    main()
