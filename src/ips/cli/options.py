"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

Scale = Literal["laptop", "paper"]

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a trained model")]
Images = Annotated[
    list[str], typer.Argument(metavar="IMAGE...", help="Image files, slides or feature files")
]
Slides = Annotated[
    list[Path], typer.Argument(metavar="SLIDES...", help="Slide files, or folders of slides")
]
OutFolder = Annotated[Path, typer.Option(metavar="DIR", help="Output folder")]
NewFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Output folder")]

Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a setting, such as select.keep=50; repeatable"
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the run in the run folder, if there is one")
]
SkipErrors = Annotated[
    bool, typer.Option("--skip-errors", help="Continue without slides that cannot be read")
]
PlacementSeed = Annotated[int, typer.Option(help="Random seed of object placement")]

Coords = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of patch coordinates written by `ips slides tissue`, CLAM or TRIDENT: only "
        "these patches are read",
    ),
]
PatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Side of a patch in pixels at the resolution that is read; by default as stored in "
        "--coords, or 256",
    ),
]
Level = Annotated[int | None, typer.Option(min=0, help="Pyramid level to read; 0 by default")]
Mpp = Annotated[
    float | None, typer.Option(help="Micrometres per pixel to read at, instead of a level")
]
Magnification = Annotated[
    float | None, typer.Option(help="Magnification to read at, such as 20, instead of a level")
]
Stages = Annotated[int | None, typer.Option(min=1, max=4, help="Number of ResNet stages to keep")]
Width = Annotated[
    int | None, typer.Option(min=1, help="Number of channels of the first ResNet stage")
]
