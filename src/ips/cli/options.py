"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from ips.devices import VARIABLE, DeviceName, use


def _use_device(name: str) -> str:
    """Use the device in the whole process, so that commands need not pass it on."""
    use(name)
    return name


Scale = Literal["laptop", "paper"]

Recipe = Annotated[
    str,
    Argument(metavar="RECIPE_OR_YAML", help="Name of a recipe (see `ips recipes`), or a YAML file"),
]
RunFolder = Annotated[Path, Argument(metavar="RUN", help="Run folder of a trained model")]
Images = Annotated[
    list[str],
    Argument(
        metavar="IMAGE",
        help="Image files, slides or feature files, folders of them, or a CSV with their paths",
    ),
]
Slides = Annotated[list[Path], Argument(metavar="SLIDE", help="Slide files, or folders of slides")]
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
Shard = Annotated[
    str | None,
    Option(
        metavar="NUMBER/COUNT",
        help="Work on one of COUNT shares, such as 2/8: a process for each, on any machines",
    ),
]
Ray = Annotated[
    str | None,
    Option(
        metavar="[ADDRESS]",
        help="Work on a Ray cluster: auto, HOST:PORT or ray://HOST:PORT; by default on one that is "
        "started on this machine",
    ),
]
Workers = Annotated[
    int | None,
    Option(min=1, help="Number of workers on Ray; by default one for each GPU, or for each CPU"),
]
Readers = Annotated[
    int | None,
    Option(
        min=0,
        help="Number of processes that read for each worker on Ray; by default the CPUs that "
        "workers with GPUs leave free, else none",
    ),
]
SlidesFolder = Annotated[
    Path | None,
    Option(
        metavar="DIR",
        help="Folder of the slides that feature files were extracted from, with the same names; by "
        "default the slides that the files name, or the column `slide` of a CSV",
    ),
]
FeaturePatchSize = Annotated[
    int | None,
    Option(
        min=1,
        help="Side in pixels, as read, of the patches of feature files that do not say it",
    ),
]
FeatureLevel = Annotated[
    int | None, Option(min=0, help="Pyramid level that --patch-size refers to; 0 by default")
]
FeatureMpp = Annotated[
    float | None, Option(help="Micrometres per pixel that --patch-size refers to, not a level")
]
Annotations = Annotated[
    Path | None,
    Option(
        metavar="PATH",
        help="GeoJSON or ASAP XML annotations: a file, or a folder of files named like the "
        "images; by default those beside the images",
    ),
]
Device = Annotated[
    DeviceName,
    Option(
        envvar=VARIABLE,
        callback=_use_device,
        help="Device; auto is the first of cuda, mps (Apple's GPU) and cpu that there is",
    ),
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
_SIZE_HELP = "Side of a patch in pixels as it is read; by default as stored in --coords, or 256"
PatchSize = Annotated[int | None, Option(min=1, help=_SIZE_HELP)]
TrainPatchSize = Annotated[int | None, Option(min=4, help=_SIZE_HELP)]
Level = Annotated[int | None, Option(min=0, help="Pyramid level to read; 0 by default")]
Mpp = Annotated[float | None, Option(help="Micrometres per pixel to read at, instead of a level")]
Magnification = Annotated[
    float | None, Option(help="Magnification to read at, such as 20, instead of a level")
]
