"""`ips predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ips.cli.app import app, err, out, say, told

if TYPE_CHECKING:
    from ips.models import Prediction
    from ips.patches import PatchSource
    from ips.predictor import Predictor


@app.command()
@told
def predict(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="files to look at")],
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="draw where it looked, into this folder")
    ] = None,
) -> None:
    """Say what a trained model sees in images, and where.

    An image that cannot be read is named, the others are answered, and the exit code is 1.
    """
    from ips.errors import IPSError
    from ips.predictor import load

    predictor = load(run)
    answers: list[dict[str, Any]] = []
    failed = 0
    for number, path in enumerate(images):
        try:
            source, prediction = _look(predictor, path)
        except IPSError as error:
            say(f"ips: {error}")
            failed += 1
            continue
        answers.append(_answer(path, prediction, predictor))
        if figures is not None:
            from ips.explain import draw_attention

            figures.mkdir(parents=True, exist_ok=True)
            draw_attention(
                figures / f"{_file_name(path, number)}.png",
                predictions=[prediction],
                sources=[source],
                titles=[predictor.title(prediction)],
                names=predictor.readout_names,
            )
    if as_json:
        typer.echo(json.dumps(answers, indent=2))
    elif answers:
        _print(answers)
    if failed:
        raise typer.Exit(1)


def _file_name(path: str, number: int) -> str:
    """Of a picture: the image's own, with its number if it is not the first."""
    name = Path(path.replace("::", "-")).stem if "::" not in path else path.replace("::", "-")
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in Path(name).name)
    return safe if number == 0 else f"{safe}-{number + 1}"


def _look(predictor: Predictor, path: str) -> tuple[PatchSource, Prediction]:
    from ips.progress import progress_bar

    source = predictor.open(path)
    with progress_bar(err, transient=True) as bar:
        task = bar.add_task(Path(path).name, total=len(source), note="patches")
        prediction = predictor.predict(path, progress=lambda done: bar.update(task, completed=done))
    return source, prediction


def _answer(path: str, prediction: Prediction, predictor: Predictor) -> dict[str, Any]:
    tasks = {
        task: {
            "answer": predictor.answer(task, probabilities),
            "probabilities": predictor.by_name(task, probabilities),
        }
        for task, probabilities in prediction.probabilities.items()
    }
    patches = [
        {"index": int(index), "x": int(x), "y": int(y), "attention": float(attention)}
        for index, (x, y), attention in zip(
            prediction.indices, prediction.coords, prediction.attention, strict=True
        )
    ]
    return {
        "image": path,
        "tasks": tasks,
        "patches": prediction.patches,
        "patch_size": prediction.extent,
        "kept": patches,
    }


def _print(answers: list[dict[str, Any]]) -> None:
    table = Table("image", *answers[0]["tasks"], "patches", "looked at most (x, y)")
    for answer in answers:
        cells = [_cell(task) for task in answer["tasks"].values()]
        best = answer["kept"][0]
        place = f"{best['x']}, {best['y']}"
        table.add_row(answer["image"], *cells, f"{answer['patches']:,}", place)
    out.print(table)


def _cell(task: dict[str, Any]) -> str:
    answer = task["answer"]
    if isinstance(answer, list):
        return " ".join(answer) or "none"
    return f"{answer} ({task['probabilities'][answer]:.2f})"
