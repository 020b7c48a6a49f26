"""Tables and figures of results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from ips.experiments.arms import Arm
from ips.experiments.figures import draw_grid, draw_lines, draw_scores
from ips.experiments.tables import (
    BEGUN,
    MACRO_F1,
    Result,
    localisation_table,
    markdown,
    per_run,
    write_csv,
)

A = Arm("IPS", ("method=ips",), {"M": "5"}, {"majority": "98.9 ± 0.3"})
B = Arm("CNN", ("method=cnn",))


def test_the_table_has_mean_deviation_and_published_numbers() -> None:
    results = [Result(A, s, "majority", v) for s, v in enumerate((0.9, 0.8))]
    results += [Result(B, 0, "majority", 0.5), Result(A, None, "memory_gb", 1.234)]
    assert markdown([A, B], results).splitlines() == [
        "| method | M | majority [%] | paper | memory [GB] |",
        "| --- | --- | --- | --- | --- |",
        "| IPS | 5 | 85.0 ± 7.1 | 98.9 ± 0.3 | 1.23 |",
        "| CNN | – | 50.0 | – | – |",
    ]
    assert "| IPS | 5 | 80.0 | 90.0 | 98.9 ± 0.3 |" in per_run([A], results, "majority")


def test_a_second_table_says_where_attention_is() -> None:
    scores = [Result(A, 0, "majority", 0.9), Result(B, 0, "majority", 0.5)]
    assert localisation_table([A, B], scores) == ""
    located = [Result(A, s, "majority", v, measure="pointing") for s, v in enumerate((0.9, 0.8))]
    located.append(Result(A, 0, "majority", 0.25, measure="froc"))
    header, line, row, empty, caveat = localisation_table([A, B], scores + located).splitlines()
    assert header == (
        "| method | M | task | top patch on object [%] | if correct [%] | AP of patches [%] "
        "| objects selected [%] | FROC [%] |"
    )
    assert row == "| IPS | 5 | majority | 85.0 ± 7.1 | – | – | – | 25.0 |"
    assert (line.count("---"), empty) == (8, "")
    assert "not a detection method" in caveat
    # The first table has scores alone.
    assert markdown([A, B], scores + located) == markdown([A, B], scores)


def test_the_table_counts_the_trainings_that_have_begun() -> None:
    results = [Result(A, s, "majority", 0.9) for s in range(3)] + [Result(B, 0, "majority", 0.5)]
    results += [Result(A, s, "training", float(s > 0), measure=BEGUN) for s in range(3)]
    header, _, first, second = markdown([A, B], results).splitlines()
    assert header.endswith("| majority [%] | paper | begun |")
    assert first.endswith("| 2 of 3 |")
    assert second.endswith("| – |")
    assert localisation_table([A, B], results) == ""


def test_macro_f1_is_beside_the_score_of_its_task() -> None:
    results = [Result(arm, 0, task, 0.9) for arm in (A, B) for task in ("limit", "weather")]
    results.append(Result(A, 0, "limit", 0.75, measure=MACRO_F1))
    header, _, first, second = markdown([A, B], results).splitlines()
    assert "| limit [%] | macro F1 [%] | weather [%] |" in header
    assert "| 90.0 | 75.0 | 90.0 |" in first
    assert "| 90.0 | – | 90.0 |" in second


def test_the_csv_file_is_tidy(tmp_path: Path) -> None:
    results = [
        Result(A, 1, "majority", 0.5),
        Result(A, 1, "majority", 0.25, measure="recall"),
        Result(B, None, "step_ms", 3.0),
    ]
    write_csv(tmp_path / "r.csv", results)
    assert (tmp_path / "r.csv").read_text().splitlines() == [
        "label,method,M,seed,name,value,source",
        "IPS,ips,5,1,majority,0.5,measured",
        "IPS,ips,5,1,majority recall,0.25,measured",
        "CNN,cnn,,,step_ms,3,measured",
    ]


def test_the_figures_are_drawn(tmp_path: Path) -> None:
    grid = [
        Arm("IPS", (), {"M": m, "I": i, "N": "9", "micro-batch": size})
        for m in "24"
        for i in ("2", "4", "all")
        for size in ("fixed", "B·I")
    ]
    sizes = [Arm(label, (), {"side": s}) for label in ("IPS", "CNN") for s in ("1,000", "2,000")]

    def results(arms: list[Arm]) -> list[Result]:
        names = ("memory_gb", "step_ms", "majority")
        return [Result(arm, 0, name, 0.5) for arm in arms for name in names]

    draw_grid(tmp_path / "grid.png", grid, results(grid))
    draw_lines(
        tmp_path / "lines.png", sizes, results(sizes), x="side", panels=("step_ms", "majority")
    )
    draw_scores(tmp_path / "scores.png", [A, B], results([A, B]))
    assert {path.name for path in tmp_path.iterdir()} == {"grid.png", "lines.png", "scores.png"}


def test_long_names_of_methods_are_drawn_whole(tmp_path: Path) -> None:
    arm = Arm("IPS Transformer, as published", (), {"M": "16", "N": "361"})
    draw_scores(tmp_path / "scores.png", [arm], [Result(arm, 0, "majority", 0.5)])
    with Image.open(tmp_path / "scores.png") as picture:
        grey = np.asarray(picture.convert("L"))
    assert (grey[:, :5] == 255).all()
    assert (grey[:, :400] < 255).any()
