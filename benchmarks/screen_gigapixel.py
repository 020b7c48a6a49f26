"""Predict slides of 16 gigapixels with a screen, and by looking at every patch.

    python benchmarks/screen_gigapixel.py                        # in runs/screen
    python benchmarks/screen_gigapixel.py --side 16384           # smaller slides, to try it

A small model learns from 64 drawn slides of 4,096 px whether the tissue has dark spots, with
`select.screen: true`. It then predicts a slide that is mostly white and one full of tissue, each
with the screen and without, in turn. Prints the seconds by the clock and by the processor, the
peak of memory, and which of the selected patches the screen found. Missing files are created.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

from make_gigapixel import Tissue, write_slide
from predict_gigapixel import IPS, Measured, make_parser, measure

from ips.nn.weights_file import read_weights, write_weights

CONFIG = """\
data: {kind: table, csv: slides.csv}
patches: {size: 256}
encoder: {name: thin-resnet, stages: 2, width: 16, norm: true}
select: {keep: 16, chunk: 256, load: lazy, screen: true}
train: {epochs: 12, batch: 4, lr: 0.001, warmup: 1, clip: 1, result: last}
tasks:
  spots: {kind: binary}
"""
_SIDE, _SLIDES = 4096, 96  # of the slides for training, validation and test
_SPOTS = 6  # in each slide that has any


def make_model(folder: Path) -> Path:
    """Run folder of a model with a screen, trained if it is missing."""
    run = folder / "run"
    if not (run / "model.safetensors").exists():
        rows = ["path,spots,split"]
        for number in range(_SLIDES):
            path, spots = folder / f"small-{number}.tif", number % 2
            tissue: Tissue = "full" if number % 3 == 0 else "half"
            if not path.exists():
                write_slide(path, side=_SIDE, seed=number, tissue=tissue, spots=_SPOTS * spots)
            split = ("train", "train", "train", "train", "validation", "test")[number // 2 % 6]
            rows.append(f"{path.name},{spots},{split}")
        (folder / "slides.csv").write_text("\n".join(rows) + "\n")
        config = folder / "slides.yaml"
        config.write_text(CONFIG.replace("slides.csv", str(folder / "slides.csv")))
        subprocess.run([*IPS, "train", str(config), "--run", str(run), "--resume"], check=True)
    return run


def without_screen(run: Path) -> Path:
    """A copy of a run whose model scores all patches."""
    whole = run.with_name("run-whole")
    shutil.rmtree(whole, ignore_errors=True)
    shutil.copytree(run, whole)
    path = whole / "model.safetensors"
    tensors, header = read_weights(path)
    tensors["screen.share"].fill_(1)
    write_weights(path, tensors, config=json.loads(header["config"]))
    return whole


def predict(run: Path, slide: Path, output: Path) -> tuple[Measured, float, dict[str, Any]]:
    """Predict a slide; return the measurement, the processor's seconds and the prediction."""
    shutil.rmtree(run / "unfinished", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = measure([*IPS, "predict", str(run), str(slide), "--json"], output=output)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found, busy, json.loads(output.read_text())[0]


def main() -> None:
    parser = make_parser("Predict 16 gigapixels with a screen, and without.")
    parser.set_defaults(folder=Path("runs/screen"))
    args = parser.parse_args()
    folder: Path = args.folder
    folder.mkdir(parents=True, exist_ok=True)
    runs = {"screen": make_model(folder)}
    runs["all patches"] = without_screen(runs["screen"])
    tissues: tuple[Tissue, ...] = ("some", "full")
    for tissue in tissues:
        slide = folder / f"slide-{args.side}-{tissue}.tif"
        if not slide.exists():
            print(f"writing {slide}")
            write_slide(slide, side=args.side, seed=1000, tissue=tissue, spots=_SPOTS)
        selected, busy = {}, {}
        for name, run in runs.items():
            output = folder / f"{slide.stem}-{name.replace(' ', '-')}.json"
            found, busy[name], answer = predict(run, slide, output)
            selected[name] = {(patch["x"], patch["y"]) for patch in answer["kept"]}
            print(
                f"{tissue} tissue, {name}: {found.seconds:.0f} s, {busy[name]:.0f} s of the "
                f"processor, {found.peak / 1e6:.0f} MB, {answer['tasks']}, "
                f"{answer.get('screened', answer['patches'])}"
            )
        same = selected["screen"] & selected["all patches"]
        print(
            f"{tissue} tissue: {busy['all patches'] / busy['screen']:.1f} times less of the "
            f"processor, {len(same)} of {len(selected['all patches'])} patches are the same"
        )


if __name__ == "__main__":
    main()
