"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

Scale = Literal["laptop", "paper"]

RunFolder = Annotated[Path, Argument(metavar="RUN", help="Run folder of a trained model")]
Images = Annotated[
    list[str], Argument(metavar="IMAGE...", help="Image files, slides or feature files")
]
Slides = Annotated[
    list[Path], Argument(metavar="SLIDES...", help="Slide files, or folders of slides")
]
OutFolder = Annotated[Path, Option(metavar="DIR", help="Output folder")]
NewFolder = Annotated[Path, Argument(metavar="FOLDER", help="Output folder")]

Settings = Annotated[
    list[str] | None,
    Option(
        "--set", metavar="KEY=VALUE", help="Override a setting, such as select.keep=50; repeatable"
    ),
]
Resume = Annotated[
    bool, Option("--resume", help="Continue the run in the run folder, if there is one")
]
SkipErrors = Annotated[
    bool, Option("--skip-errors", help="Continue without slides that cannot be read")
]
PlacementSeed = Annotated[int, Option(help="Random seed of object placement")]

Coords = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="Folder of patch coordinates written by `ips slides tissue`, CLAM or TRIDENT: only "
        "these patches are read",
    ),
]
PatchSize = Annotated[
    int | None,
    Option(
        min=1,
        help="Side of a patch in pixels at the resolution that is read; by default as stored in "
        "--coords, or 256",
    ),
]
Level = Annotated[int | None, Option(min=0, help="Pyramid level to read; 0 by default")]
Mpp = Annotated[float | None, Option(help="Micrometres per pixel to read at, instead of a level")]
Magnification = Annotated[
    float | None, Option(help="Magnification to read at, such as 20, instead of a level")
]
Stages = Annotated[int | None, Option(min=1, max=4, help="Number of ResNet stages to keep")]
Width = Annotated[int | None, Option(min=1, help="Number of channels of the first ResNet stage")]
