"""`ips explain`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import app, err, say, show_table, told
from ips.cli.looking import look, make_folder


@app.command()
@told
def explain(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
    images: Annotated[list[str], typer.Argument(metavar="IMAGE...", help="files to look at")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder to write into")],
    top: Annotated[int, typer.Option(min=1, max=200, help="patches in the gallery")] = 24,
    all_patches: Annotated[
        bool, typer.Option("--all-patches", help="every patch in the GeoJSON, not only those kept")
    ] = False,
    task: Annotated[
        str | None, typer.Option(help="whose attention the TIFF shows, instead of the mean")
    ] = None,
    no_crop: Annotated[
        bool,
        typer.Option(
            "--no-crop",
            help="count the pixels of GeoJSON and TIFF from the corner of the whole slide; by "
            "default from that of the part that was scanned, as QuPath does",
        ),
    ] = False,
) -> None:
    """Show where a trained model looks in images: the attention of every patch.

    Writes for each image what its attention is in colour, per task and mean (-overlay.png), the
    patches with most of it (-gallery.png), the classes of the patches kept, where the model has a
    head for them (-classes.png), every patch in numbers (-patches.csv), outlines for QuPath
    (.geojson) and a pyramid for viewers of slides (-map.tif). An image that cannot be read is
    named, the others are explained, and the exit code is 1.
    """
    from ips.errors import ConfigError, IPSError
    from ips.explain.export import ENDINGS, omissions, output_stems, write_explanation
    from ips.predictor import load
    from ips.progress import progress_bar

    predictor = load(run)
    if task is not None and task not in predictor.config.tasks:
        known = ", ".join(predictor.config.tasks)
        raise ConfigError(f"--task {task}: the model has no such task: take one of {known}")
    stems = output_stems(images, folder=out)
    make_folder(out, "--out")
    rows = []
    try:
        for path, name in zip(images, stems, strict=True):
            try:
                seen = look(predictor, path)
                with progress_bar(err, transient=True) as bar:
                    work = bar.add_task(Path(path).name, total=len(ENDINGS), note="files")
                    write_explanation(
                        out,
                        seen,
                        stem=name,
                        top=top,
                        task=task,
                        all_patches=all_patches,
                        crop=not no_crop,
                        progress=partial(bar.advance, work),
                    )
            except IPSError as error:
                say(f"ips: {error}")
                continue
            seen.source.close()
            answer = seen.title.removeprefix(f"{seen.name}: ")
            rows.append([path, answer, f"{seen.patches:,}", f"{out / name}*"])
            for sentence in omissions(seen, crop=not no_crop):
                say(sentence)
    finally:  # hours may have gone into what there is
        if rows:
            show_table(["image", "answer", "patches", "files"], rows)
    if len(rows) < len(images):
        raise typer.Exit(1)
