"""What the paper compares: its tables and figures, at its own scale and at that of a laptop."""

from __future__ import annotations

from collections.abc import Callable

from ips.errors import ConfigError
from ips.experiments.arms import Arm, Experiment, Scale


def get_experiment(name: str) -> Experiment:
    """One of `EXPERIMENTS`."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"{name}: no such experiment: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


# What the paper prints, line by line: method, M, N, scores, VRAM in GB and milliseconds on an A100.
# (N of DPS on photographs is ours; the paper counts 768.)

_TABLE_1 = """
ips          192 192  98.4±0.5  14.2 323
ips           10 192  98.6±0.5   1.3 126
ips            2 192  98.5±0.8   1.2 114
rps           10 192  50.7±2.6   1.3  31
rps            2 192  28.3±3.2   0.9  26
dps           10 713  94.0±2.2   3.5 337
dps            2 713  97.2±0.7   2.5 296
topmil        10 192  97.7±0.5   4.5 109
topmil         2 192  98.2±0.5   4.5  96
deepmil      192 192  96.2±1.6  14.2 323
deepmil-plus 192 192  97.7±1.3  14.3 323
cnn            –   –  84.1±4.7  13.4 231
cnn-0.3        –   –  76.3±0.9   1.4  83
"""

_TABLE_2 = """
ips       5000   all  98.1±0.3   4.7 355
ips       1000   all  97.5±0.2   4.1 313
ips        100   all  97.3±0.6   4.0 313
ips       5000 70000  95.1±1.7   2.9 286
deepmil  10000 10000  84.1±1.9   4.5  26
deepmil  50000 50000  93.8±1.4  22.5 110
deepmil  70000 70000  94.5±1.1  31.5 150
topmil    5000 70000  71.8±2.0  19.8  84
topmil    1000 70000  76.2±2.9  19.8  76
topmil     100 70000  84.4±5.9  19.8  74
"""

_TABLE_3 = """
ips     900 3481  99.8±0.1 99.0±0.2 95.0±1.1 93.6±3.3  15.5 570
ips     100 3481  99.7±0.1 98.8±0.2 95.9±0.8 96.1±0.7   2.2 326
ips       5 3481  97.5±1.0 98.4±0.1 96.7±0.5 90.2±1.0   1.1 301
ips     900  900  99.1±0.2 93.7±0.5 91.7±1.4 82.5±3.0  15.0 314
ips     100  900  98.9±0.3 94.1±0.6 92.3±0.7 84.2±2.0   1.8 114
ips       5  900  94.8±0.7 92.4±0.8 91.0±1.0 72.1±3.0   0.7  89
rps     900 3481  82.5±1.6 78.5±1.9 77.6±1.0 47.0±2.4  15.4 314
rps     100 3481  33.8±1.3 34.9±1.3 29.1±1.5  0.9±0.3   2.2  47
dps     100  900  97.2±1.0 93.2±0.4 92.3±0.6 81.4±1.5  14.0 353
dps       5  900  88.1±3.1 81.7±2.6 80.1±3.6 48.3±5.7   2.2 285
topmil  900  900  98.2±0.4 90.0±1.0 52.9±0.6 71.9±4.0  15.2 381
topmil  100  900  98.4±0.3 92.4±0.3 53.8±1.0 78.0±3.0   4.6 105
topmil    5  900  97.2±0.6 91.4±0.6 71.2±1.0 72.3±1.7   4.6  73
deepmil 900  900  98.8±0.2 93.8±0.2 92.3±0.9 80.7±1.2  15.0 316
cnn       –    –  99.3±0.4 91.9±0.6 57.0±1.1 71.7±9.0  13.7 209
cnn-0.3   –    –  90.8±0.7 76.7±1.3 55.8±0.4 42.3±2.6   1.6  30
"""

# The same at the scale of a laptop: other sizes, and so nothing to put beside it.

_SMALL_TABLE_1 = """
ips       10 165
rps       10 165
dps       10 165
topmil    10 165
deepmil  165 165
cnn        –   –
cnn-0.3    –   –
"""

_SMALL_TABLE_3 = """
ips      16 361
ips      16 100
ips       5 100
rps      16 100
dps      16 100
topmil   16 100
deepmil  16 100
deepmil 100 100
cnn-0.3   –   –
cnn       –   –
"""

_LABELS = {
    "ips": "IPS Transformer",
    "rps": "RPS Transformer",
    "dps": "DPS Transformer",
    "topmil": "TopMIL",
    "deepmil": "DeepMIL",
    "deepmil-plus": "DeepMIL+",
    "ips-deepmil": "IPS DeepMIL",
    "cnn": "CNN",
    "cnn-0.3": "CNN 0.3x",
}


def _arms(
    table: str, tasks: tuple[str, ...], settings: Callable[[str, int | None, str], list[str]]
) -> list[Arm]:
    """An arm for every line; ``settings`` gives those of a method with M and N."""
    arms = []
    for line in table.strip().splitlines():
        name, keep, total, *printed = line.split()
        method = name.partition("-0.")[0]
        M = None if keep == "–" else int(keep)
        chosen = [f"method={method}", *settings(method, M, total)]
        if name == "cnn-0.3":
            chosen.append("cnn.scale=0.3")
        columns = dict(zip((*tasks, "memory_gb", "step_ms"), printed, strict=bool(printed)))
        published = {key: value.replace("±", " ± ") for key, value in columns.items()}
        show = {"M": _thousands(keep), "N": _thousands(total)}
        arms.append(Arm(_LABELS[name], tuple(chosen), show, published))
    return arms


def _thousands(number: str) -> str:
    return f"{int(number):,}" if number.isdigit() else number


def _traffic(scale: Scale) -> list[Arm]:
    def settings(method: str, M: int | None, N: str) -> list[str]:
        chosen = []
        if method == "dps":  # half overlapping: 23 x 31 patches fit, where the paper counts 24 x 32
            chosen.append(f"patches.stride={size // 2}")
        if M is not None and method != "deepmil" and method != "deepmil-plus":
            chosen.append(f"select.keep={M}")
        if M == 2 and method != "topmil":  # Appendix D.4
            chosen += ["aggregate.attention_dropout=0", "aggregate.inner=512"]
        return chosen

    size = 100 if scale == "paper" else 50
    return _arms(_TABLE_1 if scale == "paper" else _SMALL_TABLE_1, ("sign",), settings)


def _camelyon(scale: Scale) -> list[Arm]:
    def settings(method: str, M: int | None, N: str) -> list[str]:
        chosen = [] if method == "deepmil" else [f"select.keep={M}"]
        return chosen if N == "all" else [*chosen, f"patches.sample={N}"]

    return _arms(_TABLE_2, ("tumor",), settings)


def _mnist(scale: Scale) -> list[Arm]:
    def settings(method: str, M: int | None, N: str) -> list[str]:
        overlap = N in ("3481", "361")
        chosen = [f"patches.stride={25 if overlap else 50}"]
        if M is not None and str(M) != N:
            chosen.append(f"select.keep={M}")
        elif M is not None:
            chosen.append("select.keep=null")
        if M == 5 and method in ("ips", "rps", "dps"):
            chosen.append("aggregate.attention_dropout=0")  # Appendix D.4
        if M == 5 and method == "dps":
            chosen.append("dps.decay=false")  # Appendix D.5
        if scale == "laptop" and method == "dps":
            chosen.append("dps.scale=0.36")  # a score for each of the 10 x 10 patches
        return chosen

    table = _TABLE_3 if scale == "paper" else _SMALL_TABLE_3
    return _arms(table, ("majority", "max", "top", "multi"), settings)


# Figure 3


def _image_size(scale: Scale) -> list[Arm]:
    paper = scale == "paper"
    sides = range(1000, 10_001, 1000) if paper else (250, 500, 1000, 2000)
    widest_trained = 10_000 if paper else 1000
    widest_cnn = 4000 if paper else 500
    arms = []
    for side in sides:
        size = {"side": f"{side:,}"}
        for load in ("eager", "sequential", "lazy"):
            # All three learn the same: one of them is trained.
            arms.append(
                Arm(
                    f"IPS, {load}",
                    (f"data.side={side}", f"select.load={load}", "patches.stride=50"),
                    size,
                    trains=load == "eager" and side <= widest_trained,
                )
            )
        if side <= widest_cnn:
            chosen = (f"data.side={side}", "method=cnn", "patches.stride=50")
            arms.append(Arm("CNN", chosen, size))
            if paper:
                arms.append(Arm("CNN, batch 4", (*chosen, "train.batch=4"), size))
    return arms


# Figure 4


def _memory_chunk(scale: Scale) -> list[Arm]:
    all_patches = 900 if scale == "paper" else 400
    sizes = (10, 25, 50, 100, 200, 400) if scale == "paper" else (4, 16, 64, 128)
    arms = []
    for keep in sizes:
        for chunk in (*sizes, None):
            shown = {
                "M": str(keep),
                "I": "all" if chunk is None else str(chunk),
                "N": str(all_patches),
            }
            settings = (
                f"select.keep={keep}",
                f"select.chunk={chunk or all_patches - keep}",
                "patches.stride=50",
                "select.skip_blank=false",
            )
            arms.append(Arm(_LABELS["ips"], settings, shown, trains=False))
    return arms


# Table 4


def _patch_size(scale: Scale) -> list[Arm]:
    published = {
        25: ("96.7", "0.9", "417", "6", "423"),
        50: ("98.7", "1.0", "167", "7", "174"),
        100: ("98.8", "1.2", "104", "10", "114"),
        200: ("99.1", "3.3", "74", "15", "89"),
        400: ("98.4", "4.2", "88", "49", "137"),
    }
    names = ("sign", "memory_gb", "select_ms", "rest_ms", "step_ms")
    if scale == "laptop":  # from scratch, where M = 2 sees too few signs to begin with
        sizes, own = [25, 50, 100], ["select.keep=10"]
    else:
        sizes = list(published)
        own = ["select.keep=2", "aggregate.attention_dropout=0", "aggregate.inner=512"]
    return [
        Arm(
            _LABELS["ips"],
            (f"patches.size={size}", f"patches.stride={size}", *own),
            {"patch": f"{size}"},
            dict(zip(names, published[size], strict=True)) if scale == "paper" else {},
        )
        for size in sizes
    ]


# Table 10


def _ips_deepmil(scale: Scale) -> list[Arm]:
    if scale == "laptop":
        return [
            Arm("IPS DeepMIL", ("method=ips-deepmil", f"select.keep={keep}"), {"M": str(keep)})
            for keep in (5, 16, 32)
        ]
    published = {
        5: "9.1, 9.6, 10.0, 10.0, 94.3",
        100: "10.0, 98.6, 98.7, 98.7, 99.2",
        200: "98.5, 98.7, 98.9, 99.0, 99.1",
    }
    return [
        Arm(
            "IPS DeepMIL",
            ("method=ips-deepmil", f"select.keep={keep}", "patches.stride=50"),
            {"M": str(keep)},
            {"majority": runs},
        )
        for keep, runs in published.items()
    ]


_MNIST_RECIPE: dict[Scale, str] = {"laptop": "megapixel-mnist", "paper": "megapixel-mnist"}
_SIGNS_RECIPE: dict[Scale, str] = {"laptop": "road-signs", "paper": "traffic-signs"}

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "traffic-signs",
            "Table 1: speed limits in photographs",
            _SIGNS_RECIPE,
            _traffic,
        ),
        Experiment(
            "camelyon16", "Table 2: metastases in whole slides", {"paper": "camelyon16"}, _camelyon
        ),
        Experiment(
            "megapixel-mnist",
            "Table 3: relations between digits",
            _MNIST_RECIPE,
            _mnist,
            common={"laptop": ("data.side=500", "train.epochs=12")},  # a CNN without a GPU
        ),
        Experiment(
            "image-size",
            "Figure 3: memory, time and accuracy against the side of the image",
            _MNIST_RECIPE,
            _image_size,
            kind="size",
            common={"laptop": ("train.epochs=12",)},
            seeds=1,
        ),
        Experiment(
            "memory-chunk",
            "Figure 4: memory, time and iterations against M and I",
            _MNIST_RECIPE,
            _memory_chunk,
            kind="grid",
            seeds=1,
        ),
        Experiment(
            "patch-size",
            "Table 4: the size of a patch",
            _SIGNS_RECIPE,
            _patch_size,
            seeds=1,
        ),
        Experiment(
            "ips-deepmil",
            "Table 10: IPS with the attention of DeepMIL, run by run",
            _MNIST_RECIPE,
            _ips_deepmil,
            kind="runs",
        ),
    )
}
