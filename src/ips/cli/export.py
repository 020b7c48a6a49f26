"""`ips export` and `ips share`: a trained model for other programs and people."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from typer import Option

from ips import api
from ips.cli.app import app, print_message, print_table
from ips.cli.options import OutFolder, RunFolder


class Format(StrEnum):
    """Formats to export to; an enum, since typer cannot parse lists of literals."""

    torch = "torch"
    onnx = "onnx"
    wsinfer = "wsinfer"


@app.command()
def export(
    run: RunFolder,
    out: OutFolder = Path("export"),
    format: Annotated[
        list[Format] | None,
        Option(
            help="torch for torch.export, onnx, or wsinfer for the patch-level head as TorchScript "
            "in the layout of WSInfer; repeatable, torch by default"
        ),
    ] = None,
    patches: Annotated[
        int | None,
        Option(min=1, help="Number of patches of an image, to export the whole model, too"),
    ] = None,
) -> None:
    """Export a model as encoder and aggregation, and compare every file with it."""
    formats = [one.value for one in format or [Format.torch]]
    files = api.export(run, out=out, formats=formats, patches=patches)
    rows = [(str(file.path), f"{file.difference:.1e}") for file in files]
    print_table(["file", "largest difference from the model"], rows)


@app.command()
def share(
    run: RunFolder,
    out: Annotated[Path | None, Option(metavar="DIR", help="Output folder")] = None,
    hub: Annotated[
        str | None,
        Option(metavar="OWNER/REPO", help="Repository of the Hugging Face hub, instead of --out"),
    ] = None,
    public: Annotated[
        bool, Option("--public", help="Make a new repository public; private by default")
    ] = False,
    pictures: Annotated[
        bool, Option("--pictures", help="Include the figure that shows some of the test images")
    ] = False,
    licence: Annotated[
        str | None, Option(metavar="ID", help="Licence of the weights, such as apache-2.0")
    ] = None,
) -> None:
    """Write a model with a model card into a folder, or upload it to the hub."""
    where = api.share(run, out=out, hub=hub, public=public, pictures=pictures, licence=licence)
    print_message(f"{where}: model.safetensors, config.json, README.md")
