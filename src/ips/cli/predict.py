"""`ips predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ips.cli.app import app, say, show_table, told
from ips.cli.looking import look, make_folder

if TYPE_CHECKING:
    from ips.models import Prediction
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

    An image that cannot be read is named, the others are answered, and the exit code is 1. What
    was answered before an interruption is printed.
    """
    from ips.errors import IPSError
    from ips.explain.export import output_stems
    from ips.predictor import load

    predictor = load(run)
    pictures: list[Path] | None = None
    if figures is not None:
        stems = output_stems(images, folder=figures, endings=[".png"], base="-attention")
        make_folder(figures, "--figures")
        pictures = [figures / f"{stem}.png" for stem in stems]
    answers: list[dict[str, Any]] = []
    failed = 0
    try:
        for number, path in enumerate(images):
            try:
                prediction = look(predictor, path)
            except IPSError as error:
                say(f"ips: {error}")
                failed += 1
                continue
            answers.append(_answer(path, prediction, predictor))
            if pictures is not None:
                from ips.explain import draw_attention

                draw_attention(
                    pictures[number],
                    predictions=[prediction],
                    sources=[prediction.source],
                    titles=[predictor.title(prediction)],
                    names=predictor.readout_names,
                )
    finally:  # hours may have gone into the answers that there are
        if as_json:
            typer.echo(json.dumps(answers, indent=2))
        elif answers:
            _print(answers)
    if failed:
        raise typer.Exit(1)


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
    rows = []
    for answer in answers:
        cells = [_cell(task) for task in answer["tasks"].values()]
        best = answer["kept"][0]
        place = f"{best['x']}, {best['y']}"
        rows.append([answer["image"], *cells, f"{answer['patches']:,}", place])
    show_table(["image", *answers[0]["tasks"], "patches", "looked at most (x, y)"], rows)


def _cell(task: dict[str, Any]) -> str:
    answer = task["answer"]
    if isinstance(answer, list):
        return " ".join(answer) or "none"
    return f"{answer} ({task['probabilities'][answer]:.2f})"
