"""The paper's tables and figures, at its own scale and at that of a laptop, and some of our own.

The rows of the tables are in ``rows/NAME-SCALE.txt``. At the scale of the paper they include its
numbers: scores in per cent, VRAM and milliseconds on an A100. At the scale of a laptop, sizes
differ and no numbers are published.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.resources import files

from ips.errors import ConfigError
from ips.experiments import stand_in
from ips.experiments.arms import MICRO_BATCH, Arm, Experiment, Scale
from ips.experiments.drawn_slides import DOSE, prepare_drawn_slides


def get_experiment(name: str) -> Experiment:
    """Look up an experiment by name."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"{name}: no such experiment: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


_LABELS = {
    "ips": "IPS Transformer",
    "ips-published": "IPS Transformer, as published",
    "rps": "RPS Transformer",
    "dps": "DPS Transformer",
    "topmil": "TopMIL",
    "deepmil": "DeepMIL",
    "deepmil-plus": "DeepMIL+",
    "ips-deepmil": "IPS DeepMIL",
    "cnn": "CNN",
    "cnn-0.3": "CNN 0.3x",
}
_SIZES = ("M", "N", "patch")  # columns that are settings; the others are published numbers
_NO_DROPOUT = "aggregate.attention_dropout=0"
_PUBLISHED = ["train.start=attention", "train.restarts=0"]
# Where the recipe of ips has other steps.
_PUBLISHED_STEPS: dict[tuple[str, Scale], list[str]] = {
    ("traffic-signs", "laptop"): ["train.lr=0.003", "train.clip=null"],
    ("patch-size", "laptop"): ["train.lr=0.003", "train.clip=null"],
    ("gtsdb", "laptop"): ["select.refresh=1"],
}
_LED = ["train.start=patches", "train.restarts=2"]
# Where the encoder of ips is pretrained.
_LEARNT: dict[str, list[str]] = {"gtsdb": ["train.start=features", "train.restarts=2"]}
_STEPS_OF_IMAGES = 20_000
_SHIFTED = ["augment.kind=none", "augment.shift=0.5"]


def _traffic_signs(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    M, settings = sizes["M"], []
    if method not in ("cnn", "deepmil", "deepmil-plus"):
        settings.append(f"select.keep={M}")
    if M == "2" and method != "topmil":  # Appendix D.4
        settings += [_NO_DROPOUT, "aggregate.inner=512"]
    return settings


def _camelyon16(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    settings = [] if method == "deepmil" else [f"select.keep={sizes['M']}"]
    return settings if sizes["N"] == "all" else [*settings, f"patches.sample={sizes['N']}"]


def _megapixel_mnist(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    M, N = sizes["M"], sizes["N"]
    overlap = N in ("3481", "361")
    settings = [f"patches.stride={25 if overlap else 50}"]
    if method != "cnn":
        settings.append(f"select.keep={'null' if M == N else M}")
    if M == "5" and method in ("ips", "rps", "dps"):
        settings.append(_NO_DROPOUT)  # Appendix D.4
    if M == "5" and method == "dps":
        settings.append("dps.decay=false")  # Appendix D.5
    if scale == "laptop" and method == "dps":
        settings.append("dps.scale=0.34")  # 10 x 10 patches of 500 px; a third gives 9 x 9
    return settings


def _gtsdb(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    return [] if method in ("cnn", "deepmil") else [f"select.keep={sizes['M']}"]


def _slide_dose(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    return [] if method == "deepmil" else [f"select.keep={sizes['M']}"]


def _patch_size(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    grid = [f"patches.size={sizes['patch']}", f"patches.stride={sizes['patch']}"]
    if scale == "laptop":  # trained from scratch: with M = 2 the model rarely sees a sign at first
        return [*grid, "select.keep=10"]
    return [*grid, "select.keep=2", _NO_DROPOUT, "aggregate.inner=512"]


def _ips_deepmil(scale: Scale, method: str, sizes: dict[str, str]) -> list[str]:
    return [f"select.keep={sizes['M']}", "patches.stride=50"]


def _read_rows(
    name: str, row_settings: Callable[[Scale, str, dict[str, str]], list[str]], scale: Scale
) -> list[Arm]:
    """One arm per row of a table; ``row_settings`` returns the settings of a method and sizes."""
    path = files("ips.experiments") / "rows" / f"{name}-{scale}.txt"
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    arms = []
    for line in lines:
        row = dict(zip(header.split(), line.split(), strict=True))
        sizes = {key: row.pop(key) for key in _SIZES if key in row}
        label = row.pop("method", "ips")
        method = label.partition("-0.")[0].removesuffix("-published")
        settings = [f"method={method}", *row_settings(scale, method, sizes)]
        settings += _LEARNT.get(name, _LED) if label == "ips" and scale == "laptop" else _PUBLISHED
        if label == "ips-published":
            settings += _PUBLISHED_STEPS.get((name, scale), [])
        if label == "cnn-0.3":
            settings.append(f"cnn.scale={1 / 3}")  # a third, which the paper prints as 0.3x
        published = {k: v.replace("±", " ± ").replace(",", ", ") for k, v in row.items()}
        sizes = {k: f"{int(v):,}" if v.isdigit() else v for k, v in sizes.items()}
        arms.append(Arm(_LABELS[label], tuple(settings), sizes, published))
    return arms


def _image_size(scale: Scale) -> list[Arm]:
    paper = scale == "paper"
    sides = range(1000, 10_001, 1000) if paper else (250, 500, 1000, 2000)
    largest_trained, largest_cnn = (10_000, 4000) if paper else (1000, 500)
    arms = []
    for side in sides:
        sizes = {"side": f"{side:,}"}
        for load in ("eager", "sequential", "lazy"):
            settings = (f"data.side={side}", f"select.load={load}", "patches.stride=50")
            # All three ways of loading train the same model, so only one is trained.
            trains = load == "eager" and side <= largest_trained
            arms.append(Arm(f"IPS, {load}", settings, sizes, trains=trains))
        if side <= largest_cnn:
            settings = (f"data.side={side}", "method=cnn", "patches.stride=50")
            arms.append(Arm("CNN", settings, sizes))
            if paper:
                arms.append(Arm("CNN, batch 4", (*settings, "train.batch=4"), sizes))
    return arms


def _few_images(scale: Scale) -> list[Arm]:
    arms = []
    for images in (250, 500, 1000):
        for label, start in (("ips", [*_LED, *_SHIFTED]), ("ips-published", _PUBLISHED)):
            epochs = _STEPS_OF_IMAGES // images  # as many steps for all
            settings = (f"data.train={images}", f"train.epochs={epochs}", *start)
            arms.append(Arm(_LABELS[label], settings, {"images": f"{images:,}"}))
    return arms


def _memory_chunk(scale: Scale) -> list[Arm]:
    N = 900 if scale == "paper" else 400
    counts = (10, 25, 50, 100, 200, 400) if scale == "paper" else (4, 16, 64, 128)
    common = ("patches.stride=50", "select.skip_blank=false")
    arms = []
    for micro_batch, shown in (("fixed", "fixed"), ("chunk", "B·I")):
        for keep in counts:
            for chunk in (*counts, None):
                sizes = {"M": str(keep), "I": "all" if chunk is None else str(chunk), "N": str(N)}
                settings = (
                    f"select.keep={keep}",
                    f"select.chunk={chunk or N - keep}",
                    f"select.micro_batch={micro_batch}",
                    *common,
                )
                sizes[MICRO_BATCH] = shown
                arms.append(Arm(_LABELS["ips"], settings, sizes, trains=False))
    return arms


_MNIST: dict[Scale, str] = {"laptop": "megapixel-mnist", "paper": "megapixel-mnist"}
_SIGNS: dict[Scale, str] = {"laptop": "road-signs", "paper": "traffic-signs"}

# The recipe has smaller patches and batches, for the demo.
_PATCHES_AND_STEPS = (
    "patches.size=50",
    "train.batch=16",
    "train.lr=0.006",
    "train.weight_decay=0.1",
    "train.warmup=1",
)

# Feasible for a CNN without a GPU.
_SMALL_MNIST: dict[Scale, tuple[str, ...]] = {
    "laptop": ("data.side=500", "train.epochs=12", *_PATCHES_AND_STEPS)
}

# Images that are not drawn anew in every epoch, with much noise.
_FIXED_MNIST: dict[Scale, tuple[str, ...]] = {
    "laptop": (
        *("data.side=600", "data.noise=60", "data.fresh=false", "data.validation=0"),
        *("patches.stride=50", *_PATCHES_AND_STEPS),
    )
}

_ALL = (
    Experiment(
        "traffic-signs",
        "Table 1: speed limits in photographs",
        _SIGNS,
        partial(_read_rows, "traffic-signs", _traffic_signs),
    ),
    Experiment(
        "camelyon16",
        "Table 2: metastases in whole slides",
        {"laptop": "tissue-slides", "paper": "camelyon16"},
        partial(_read_rows, "camelyon16", _camelyon16),
        patches={"paper": stand_in.PATCHES},
        prepare={"laptop": prepare_drawn_slides},
    ),
    Experiment(
        "megapixel-mnist",
        "Table 3: relations between digits",
        _MNIST,
        partial(_read_rows, "megapixel-mnist", _megapixel_mnist),
        common=_SMALL_MNIST,
    ),
    Experiment(
        "image-size",
        "Figure 3: memory, time and accuracy against the side of the image",
        _MNIST,
        _image_size,
        kind="lines",
        lines=("side", ("memory_gb", "step_ms", "majority")),
        common={"laptop": ("train.epochs=12", *_PATCHES_AND_STEPS)},
        seeds=1,
    ),
    Experiment(
        "memory-chunk",
        "Figure 4: memory, time and iterations against M and I",
        _MNIST,
        _memory_chunk,
        kind="grid",
        common={"laptop": _PATCHES_AND_STEPS},
        seeds=1,
    ),
    Experiment(
        "patch-size",
        "Table 4: the size of a patch",
        _SIGNS,
        partial(_read_rows, "patch-size", _patch_size),
        seeds=1,
    ),
    Experiment(
        "ips-deepmil",
        "Table 10: IPS with the attention of DeepMIL, run by run",
        _MNIST,
        partial(_read_rows, "ips-deepmil", _ips_deepmil),
        kind="table-per-run",
        common=_SMALL_MNIST,
    ),
    Experiment(
        "few-images",
        "Accuracy against the number of training images, among much noise",
        {"laptop": "megapixel-mnist"},
        _few_images,
        kind="lines",
        lines=("images", ("majority", "max", "top", "multi")),
        common=_FIXED_MNIST,
    ),
    Experiment(
        "slide-dose",
        "Area of abnormal nuclei (R²) and survival (concordance index) in synthetic slides",
        {"laptop": "tissue-dose"},
        partial(_read_rows, "slide-dose", _slide_dose),
        seeds=3,
        prepare={"laptop": partial(prepare_drawn_slides, sizes=DOSE)},
    ),
    Experiment(
        "gtsdb",
        "Speed limits on real photographs (get them with `ips data gtsdb`)",
        {"laptop": "gtsdb"},
        partial(_read_rows, "gtsdb", _gtsdb),
        common={"laptop": ("data.validation=0", "train.result=last")},  # all 600 photographs
        seeds=3,
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
