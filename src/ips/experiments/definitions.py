"""The paper's tables and figures, at its own scale and at the scale of a laptop."""

from __future__ import annotations

from collections.abc import Callable

from ips.errors import ConfigError
from ips.experiments.arms import Arm, Experiment, Scale


def get_experiment(name: str) -> Experiment:
    """Look up an experiment by name."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"{name}: no such experiment: there are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


# The paper's numbers: scores in per cent, VRAM and milliseconds on an A100.
# (N of DPS on photographs is ours; the paper counts 768.)

_TABLE_1 = """
method         M   N  sign  memory_gb step_ms
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
method      M     N  tumor  memory_gb step_ms
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
method    M    N  majority max top multi  memory_gb step_ms
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

_TABLE_4 = """
patch  sign memory_gb select_ms rest_ms step_ms
   25  96.7       0.9       417       6     423
   50  98.7       1.0       167       7     174
  100  98.8       1.2       104      10     114
  200  99.1       3.3        74      15      89
  400  98.4       4.2        88      49     137
"""

_TABLE_10 = """
method         M  majority
ips-deepmil    5  9.1,9.6,10.0,10.0,94.3
ips-deepmil  100  10.0,98.6,98.7,98.7,99.2
ips-deepmil  200  98.5,98.7,98.9,99.0,99.1
"""

# The same at the scale of a laptop. The sizes differ, so no published numbers apply.

_SMALL_TABLE_1 = """
method     M   N
ips       10 165
rps       10 165
dps       10 165
topmil    10 165
deepmil  165 165
cnn        –   –
cnn-0.3    –   –
"""

_SMALL_TABLE_3 = """
method    M   N
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

_SMALL_TABLE_4 = """
patch
   25
   50
  100
"""

_SMALL_TABLE_10 = """
method        M
ips-deepmil   5
ips-deepmil  16
ips-deepmil  32
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
_SIZES = ("M", "N", "patch")  # columns that are settings; the others are published numbers
_NO_DROPOUT = "aggregate.attention_dropout=0"


def _arms(table: str, settings: Callable[[str, dict[str, str]], list[str]]) -> list[Arm]:
    """One arm per row; ``settings`` returns those of a method and the row's sizes."""
    header, *lines = table.strip().splitlines()
    arms = []
    for line in lines:
        row = dict(zip(header.split(), line.split(), strict=True))
        sizes = {key: row.pop(key) for key in _SIZES if key in row}
        name = row.pop("method", "ips")
        method = name.partition("-0.")[0]
        chosen = [f"method={method}"] if header.startswith("method") else []
        chosen += settings(method, sizes)
        if name == "cnn-0.3":
            chosen.append("cnn.scale=0.3")
        published = {k: v.replace("±", " ± ").replace(",", ", ") for k, v in row.items()}
        show = {k: f"{int(v):,}" if v.isdigit() else v for k, v in sizes.items()}
        arms.append(Arm(_LABELS[name], tuple(chosen), show, published))
    return arms


def _traffic_signs(scale: Scale) -> list[Arm]:
    def settings(method: str, sizes: dict[str, str]) -> list[str]:
        M, chosen = sizes["M"], []
        if method == "dps":  # half overlapping: 23 x 31 patches fit, where the paper counts 24 x 32
            chosen.append(f"patches.stride={50 if scale == 'paper' else 25}")
        if method not in ("cnn", "deepmil", "deepmil-plus"):
            chosen.append(f"select.keep={M}")
        if M == "2" and method != "topmil":  # Appendix D.4
            chosen += [_NO_DROPOUT, "aggregate.inner=512"]
        return chosen

    return _arms(_TABLE_1 if scale == "paper" else _SMALL_TABLE_1, settings)


def _camelyon16(scale: Scale) -> list[Arm]:
    def settings(method: str, sizes: dict[str, str]) -> list[str]:
        chosen = [] if method == "deepmil" else [f"select.keep={sizes['M']}"]
        return chosen if sizes["N"] == "all" else [*chosen, f"patches.sample={sizes['N']}"]

    return _arms(_TABLE_2, settings)


def _megapixel_mnist(scale: Scale) -> list[Arm]:
    def settings(method: str, sizes: dict[str, str]) -> list[str]:
        M, N = sizes["M"], sizes["N"]
        overlap = N in ("3481", "361")
        chosen = [f"patches.stride={25 if overlap else 50}"]
        if method != "cnn":
            chosen.append(f"select.keep={'null' if M == N else M}")
        if M == "5" and method in ("ips", "rps", "dps"):
            chosen.append(_NO_DROPOUT)  # Appendix D.4
        if M == "5" and method == "dps":
            chosen.append("dps.decay=false")  # Appendix D.5
        if scale == "laptop" and method == "dps":
            chosen.append("dps.scale=0.36")  # a score for each of the 10 x 10 patches
        return chosen

    return _arms(_TABLE_3 if scale == "paper" else _SMALL_TABLE_3, settings)


def _patch_size(scale: Scale) -> list[Arm]:
    def settings(method: str, sizes: dict[str, str]) -> list[str]:
        cut = [f"patches.size={sizes['patch']}", f"patches.stride={sizes['patch']}"]
        if scale == "laptop":  # training from scratch, where M = 2 sees too few signs at first
            return [*cut, "select.keep=10"]
        return [*cut, "select.keep=2", _NO_DROPOUT, "aggregate.inner=512"]

    return _arms(_TABLE_4 if scale == "paper" else _SMALL_TABLE_4, settings)


def _ips_deepmil(scale: Scale) -> list[Arm]:
    def settings(method: str, sizes: dict[str, str]) -> list[str]:
        keep = [f"select.keep={sizes['M']}"]
        return [*keep, "patches.stride=50"] if scale == "paper" else keep

    return _arms(_TABLE_10 if scale == "paper" else _SMALL_TABLE_10, settings)


def _image_size(scale: Scale) -> list[Arm]:
    paper = scale == "paper"
    sides = range(1000, 10_001, 1000) if paper else (250, 500, 1000, 2000)
    largest_trained, largest_cnn = (10_000, 4000) if paper else (1000, 500)
    arms = []
    for side in sides:
        show = {"side": f"{side:,}"}
        for load in ("eager", "sequential", "lazy"):
            settings = (f"data.side={side}", f"select.load={load}", "patches.stride=50")
            # All three learn the same, so only one of them is trained.
            trains = load == "eager" and side <= largest_trained
            arms.append(Arm(f"IPS, {load}", settings, show, trains=trains))
        if side <= largest_cnn:
            settings = (f"data.side={side}", "method=cnn", "patches.stride=50")
            arms.append(Arm("CNN", settings, show))
            if paper:
                arms.append(Arm("CNN, batch 4", (*settings, "train.batch=4"), show))
    return arms


def _memory_chunk(scale: Scale) -> list[Arm]:
    N = 900 if scale == "paper" else 400
    sizes = (10, 25, 50, 100, 200, 400) if scale == "paper" else (4, 16, 64, 128)
    arms = []
    for keep in sizes:
        for chunk in (*sizes, None):
            show = {"M": str(keep), "I": "all" if chunk is None else str(chunk), "N": str(N)}
            settings = (
                f"select.keep={keep}",
                f"select.chunk={chunk or N - keep}",
                "patches.stride=50",
                "select.skip_blank=false",
            )
            arms.append(Arm(_LABELS["ips"], settings, show, trains=False))
    return arms


_MNIST: dict[Scale, str] = {"laptop": "megapixel-mnist", "paper": "megapixel-mnist"}
_SIGNS: dict[Scale, str] = {"laptop": "road-signs", "paper": "traffic-signs"}

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment("traffic-signs", "Table 1: speed limits in photographs", _SIGNS, _traffic_signs),
        Experiment(
            "camelyon16",
            "Table 2: metastases in whole slides",
            {"paper": "camelyon16"},
            _camelyon16,
        ),
        Experiment(
            "megapixel-mnist",
            "Table 3: relations between digits",
            _MNIST,
            _megapixel_mnist,
            common={"laptop": ("data.side=500", "train.epochs=12")},  # a CNN without a GPU
        ),
        Experiment(
            "image-size",
            "Figure 3: memory, time and accuracy against the side of the image",
            _MNIST,
            _image_size,
            kind="size",
            common={"laptop": ("train.epochs=12",)},
            seeds=1,
        ),
        Experiment(
            "memory-chunk",
            "Figure 4: memory, time and iterations against M and I",
            _MNIST,
            _memory_chunk,
            kind="grid",
            seeds=1,
        ),
        Experiment("patch-size", "Table 4: the size of a patch", _SIGNS, _patch_size, seeds=1),
        Experiment(
            "ips-deepmil",
            "Table 10: IPS with the attention of DeepMIL, run by run",
            _MNIST,
            _ips_deepmil,
            kind="runs",
        ),
    )
}
