"""`ips view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import app, say, told


@app.command()
@told
def view(
    run: Annotated[Path, typer.Argument(help="folder of a trained model")],
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE...", help="files, or folders of images")
    ],
    annotations: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="GeoJSON or ASAP XML: a file, or a folder of files called like the images; "
            "by default those beside the images",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="of the page; 0 takes a free one")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="open the page in a browser")] = True,
) -> None:
    """Walk through images in the browser, with what a trained model sees in them.

    The page is for this machine only, and for whoever has its address. Images are looked at in
    the background; what was found is kept in the run folder.
    """
    import os
    import webbrowser

    import torch

    from ips.errors import DataError
    from ips.predictor import load
    from ips.viewer import Library, find_images, serve

    if annotations is not None and not annotations.exists():
        raise DataError(f"--annotations {annotations}: there is no such file or folder")
    paths = find_images(images)
    if annotations is not None and annotations.is_file() and len(paths) > 1:
        raise DataError(
            f"--annotations {annotations}: one file for {len(paths)} images: give a folder of "
            "files that are called like the images"
        )
    # One core is left to the page.
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 2) - 1)))
    library = Library(load(run), run, paths, annotations=annotations)

    def ready(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)

    try:
        serve(library, port=port, on_ready=ready)
    except KeyboardInterrupt:
        say("ended")
