"""From a folder of slides to a trained classifier and its attention, in five commands.

    python examples/whole_slides.py                       # in runs/whole-slides
    python examples/whole_slides.py --folder /tmp/try --slides 8 --epochs 2 --seeds 1     # quickly

The slides are generated (`ips data tissue-slides`). With your own slides, leave out the first
command and write a CSV of paths and labels. Each command is what you would type, and continues
where it stopped, so the script can be interrupted and started again. At the end, `figures/` has
pictures of two test slides (Figures 1, 5 and 10 of the paper), and `summary.json` has the AUC on
held-out slides, and how well attention finds the patches with abnormal nuclei, for features
pre-trained with BYOL and for those of the same encoder untrained.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import ips
from ips.data.synthetic.tissue_slides import abnormal_patches, load_clusters
from ips.localisation import average_precision, hit_rate

PATCH = 64  # side of a patch in pixels of 0.5 µm
ENCODER = ["--encoder", "thin-resnet", "--width", "32", "--stages", "3"]
CONFIG = """\
data: {{kind: table, csv: {csv}, validation: 0}}
encoder: {{name: projector, dim: 64}}
select: {{keep: 128, chunk: 512, load: sequential}}
aggregate: {{heads: 8, dropout: 0.1, attention_dropout: 0.1}}
train: {{epochs: {epochs}, batch: 16, lr: 0.001, seed: {seed}}}
tasks:
  tumor: {{kind: binary, names: [normal, tumor]}}
"""


def command(*words: object) -> float:
    """Print and run `ips ...`; return the seconds it took."""
    line = [str(word) for word in words]
    print("\n$ ips", shlex.join(line), flush=True)
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "ips", *line], check=True)
    return time.monotonic() - start


def feature_table(slides: Path, features: Path, target: Path) -> None:
    """Copy the CSV of slides with the path of each slide replaced by its feature file."""
    with slides.open(newline="") as file, target.open("w", newline="") as out:
        rows = list(csv.DictReader(file))
        writer = csv.DictWriter(out, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            path = (features / f"{Path(row['path']).stem}.h5").resolve()
            writer.writerow(row | {"path": str(path)})


def localisation(run: Path, table: Path, truth: Path) -> dict[str, float]:
    """Score how well attention finds abnormal nuclei, as a mean over the test slides with any."""
    predictor = ips.load(run)
    found = []
    with table.open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["split"] == "test" and r["tumor"] == "1"]
    for row in rows:
        answer = predictor.predict(row["path"])
        source = answer.source
        clusters = load_clusters(truth / f"{Path(row['path']).stem}.geojson")
        abnormal = abnormal_patches(clusters, source.coords, extent=source.extent or PATCH)
        scores = np.asarray(answer.all_attention["tumor"])
        top = int(abnormal.sum())
        best = np.argsort(-scores)[:top]
        found.append(
            {
                "average precision": average_precision(scores, abnormal),
                "chance level": float(abnormal.mean()),
                "hit rate of top patches": hit_rate(best, abnormal),
                "hit rate of selected patches": hit_rate(answer.indices.numpy(), abnormal),
            }
        )
    if not found:
        raise SystemExit("no test slide has abnormal nuclei: use more --slides")
    return {key: float(np.mean([f[key] for f in found])) for key in found[0]}


def draw_slides(run: Path, table: Path, truth: Path, out: Path) -> None:
    """Draw two test slides with abnormal nuclei: attention, crops, and the truth as contours."""
    with table.open(newline="") as file:
        rows = [r for r in csv.DictReader(file) if r["split"] == "test" and r["tumor"] == "1"]
    slides = [row["path"] for row in rows[:2]]
    command("explain", run, *slides, "--annotations", truth, "--out", out)


def main() -> None:
    """Run the commands, and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/whole-slides"))
    parser.add_argument("--slides", type=int, default=160)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=50, help="number of epochs of the classifier")
    parser.add_argument("--pretrain-epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3, help="number of classifiers per encoder")
    options = parser.parse_args()
    folder: Path = options.folder
    data, tissue = folder / "data", folder / "tissue"
    took = {}

    took["draw"] = command(
        "data", "tissue-slides", data, "--count", options.slides, "--side", options.side
    )
    took["tissue"] = command(
        "slides", "tissue", data / "slides", "--out", tissue, "--patch-size", PATCH
    )
    shared = ["--coords", tissue, "--patch-size", PATCH]
    byol = folder / "byol"
    took["pretrain"] = command(
        *(
            "pretrain",
            data / "slides.csv",
            "--run",
            byol,
            *shared,
            *ENCODER,
        ),
        *("--patches-per-slide", 30, "--epochs", options.pretrain_epochs, "--batch", 128),
        *("--optimizer", "adamw", "--tau", 0.99, "--hidden", 512, "--projection", 128, "--resume"),
    )
    summary: dict[str, object] = {}
    for name, weights in {"byol": byol / "encoder.safetensors", "untrained": "none"}.items():
        features, table = folder / f"features-{name}", folder / f"{name}.csv"
        encoder = ENCODER if weights == "none" else []
        took[f"features {name}"] = command(
            *("slides", "features", data / "slides", "--out", features, *shared),
            *("--crop", PATCH, "--weights", weights, *encoder),
        )
        feature_table(data / "slides.csv", features, table)
        scores = []
        for seed in range(options.seeds):
            config = folder / f"{name}-{seed}.yaml"
            text = CONFIG.format(csv=table.resolve(), epochs=options.epochs, seed=seed)
            config.write_text(text)
            run = folder / f"run-{name}-{seed}"
            took[f"train {name} {seed}"] = command("train", config, "--run", run, "--resume")
            auc = json.loads((run / "test.json").read_text())["tumor"]["score"]
            scores.append({"auc": auc, **localisation(run, table, data / "truth")})
        summary[name] = {
            "runs": scores,
            "mean": {key: float(np.mean([s[key] for s in scores])) for key in scores[0]},
        }
    draw_slides(folder / "run-byol-0", folder / "byol.csv", data / "truth", folder / "figures")
    path = folder / "summary.json"
    before = json.loads(path.read_text())["seconds"] if path.is_file() else {}
    took = {key: max(value, before.get(key, 0.0)) for key, value in took.items()}
    summary["seconds"] = took
    path.write_text(json.dumps(summary, indent=2) + "\n")
    for name in ("byol", "untrained"):
        print(f"\n{name}: {json.dumps(summary[name]['mean'], indent=2)}")  # type: ignore[index]
    print(f"\ntotal: {sum(took.values()):.0f} s; written: {folder / 'summary.json'}")


if __name__ == "__main__":
    main()
