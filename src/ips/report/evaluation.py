"""Score a trained model on a cohort from elsewhere: predictions, scores as JSON, and a page.

predictions.csv   a row for each image, see `ips.prediction_file`
scores.json       scores with intervals, ROC curves, calibration
report.html       the same for people, with examples
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ips._version import __version__
from ips.cohort import Cohort, predict_cohort
from ips.errors import ConfigError, IPSError
from ips.files import write_text
from ips.loading import load
from ips.locks import lock_folder
from ips.predictions import PURPOSE
from ips.report.page import write_page
from ips.report.quality import quality_values
from ips.report.run_report import Shown, cohort_content
from ips.task_scores import TaskScores, task_scores
from ips.training import RunFolder


@dataclass(frozen=True)
class CohortEvaluation:
    """Scores of a model on a cohort.

    Attributes:
        folder: folder of the files.
        results: scores of each task that the table has labels of.
        images: number of images that were predicted.
        failed: why other images could not be predicted, by path.
        resampled: what intervals are computed over, such as a number of patients.
        notes: sentences about the images.
    """

    folder: Path
    results: dict[str, TaskScores]
    images: int
    failed: dict[str, str]
    resampled: str
    notes: list[str]


def evaluate_cohort(
    run: str | Path,
    data: str | Path,
    *,
    out: str | Path | None = None,
    examples: int = 4,
    console: Console | None = None,
    on_error: Callable[[IPSError], None] | None = None,
) -> CohortEvaluation:
    """Score a trained model on the labelled images of a table, such as an external cohort.

    The table has the label columns of the training, and names classes as in training. An image
    that cannot be read is left out of the scores. The same call continues an interrupted one.
    Intervals come from a bootstrap over patients or other groups, if the table has a column of
    them, otherwise over images.

    Args:
        run: folder of a trained model, or of a cross-validation.
        data: CSV with images and labels.
        out: output folder; ``evaluations/NAME`` in the run folder by default.
        examples: number of images to show, each of the correct and of the wrong ones.
        on_error: callback that receives the error of an image.
    """
    table, folder = Path(data), Path(run)
    predictor = load(folder)
    out = Path(out or folder / "evaluations" / table.stem)
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: that is a file: give a folder")
    with lock_folder(out, option="--out"):
        cohort = predict_cohort(
            predictor,
            table,
            csv=out / "predictions.csv",
            split=RunFolder(folder).split,
            console=console,
            on_error=on_error,
        )
        results = {task.name: task_scores(task) for task in cohort.predictions.tasks}
        _write_scores(out / "scores.json", folder, table, cohort, results)
        name = folder.resolve().name
        shown = Shown(examples, console=console)
        content = cohort_content(predictor, name, table, cohort, shown)
        write_page(out / "report.html", content)
    count = len(cohort.bags)
    return CohortEvaluation(out, results, count, cohort.failed, cohort.resampled, cohort.notes)


def _write_scores(
    path: Path, run: Path, table: Path, cohort: Cohort, results: dict[str, TaskScores]
) -> None:
    values = {
        "purpose": PURPOSE,
        "version": __version__,
        "run": str(run),
        "data": str(table),
        "images": len(cohort.bags),
        "intervals": f"95 %, bootstrap over {cohort.resampled}",
        "notes": cohort.notes,
        "failed": cohort.failed,
        "tasks": {
            task.name: results[task.name].as_dict() | quality_values(task)
            for task in cohort.predictions.tasks
        },
    }
    # A file name may hold bytes that are not valid Unicode, which ASCII escapes keep.
    write_text(path, json.dumps(values, indent=2) + "\n")
