"""`ips slides`: find the tissue of whole slides, and store the features of their patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from ips import api
from ips.cli import options
from ips.cli.app import app, err, hints, print_message, print_table
from ips.errors import ConfigError

if TYPE_CHECKING:
    from ips.slides.sharing import SlideState, State

slides = typer.Typer(
    help="Prepare whole slides: find their tissue, and store features.", no_args_is_help=True
)
app.add_typer(slides, name="slides")


@slides.command()
def tissue(
    paths: options.Slides,
    out: options.OutFolder,
    patch_size: Annotated[int, Option(help="Side of a patch in pixels as it is read")] = 256,
    mpp: options.Mpp = None,
    magnification: options.Magnification = None,
    level: options.Level = None,
    tissue_level: Annotated[
        int | None,
        Option(
            help="Pyramid level to search for tissue; by default the coarsest with a downsample of "
            "at most 16 and at least 16 pixels per patch side"
        ),
    ] = None,
    edge: Annotated[
        Literal["drop", "pad", "fit"],
        Option(help="Patches across the slide's border: drop, pad with background, or fit inside"),
    ] = "drop",
    skip_errors: options.SkipErrors = False,
) -> None:
    """Find the patches of slides that contain tissue, and draw them for you to check.

    Patch coordinates are written to DIR/patches, thumbnails to DIR/thumbnails. Finished slides are
    not read again. A slide without tissue is reported and is not an error.
    """
    from ips.slides.coords import Resolution

    with hints(skip_errors=skip_errors):
        found = api.find_tissue(
            paths,
            out=out,
            resolution=Resolution(patch_size, level, mpp, magnification),
            tissue_level=tissue_level,
            edge=edge,
            skip_errors=skip_errors,
            console=err,
        )
    counts = [(s.slide.name, f"{s.kept:,} of {s.total:,}" * (not s.failed), s.note) for s in found]
    print_table(["slide", "patches with tissue", "note"], counts)
    failed = sum(slide.failed for slide in found)
    full = sum(slide.kept > 0 for slide in found)
    unread = f", {failed:,} not read" if failed else ""
    print_message(
        f"tissue in {full:,} of {len(found):,} slides, none in {len(found) - full - failed:,}"
        f"{unread}: check {out / 'thumbnails'}"
    )
    if failed:
        raise typer.Exit(1)


@slides.command()
def features(
    paths: options.Slides,
    out: options.OutFolder,
    encoder: Annotated[
        str | None,
        Option(
            help="Encoder: resnet18, resnet50, thin-resnet, timm:NAME, or hub:OWNER/REPO for a "
            "model that timm can load; by default the encoder stored in --weights, or resnet50"
        ),
    ] = None,
    weights: Annotated[
        str | None,
        Option(
            help="Weights of the encoder: a file such as that of `ips pretrain`, imagenet, "
            "hub:OWNER/REPO, or none for an untrained encoder"
        ),
    ] = None,
    stages: Annotated[
        int | None, Option(min=1, max=4, help="Number of ResNet stages to keep")
    ] = None,
    width: Annotated[
        int | None, Option(min=1, help="Number of channels of the first ResNet stage")
    ] = None,
    mean: Annotated[
        str | None, Option(help="Mean of pixels between 0 and 1, such as 0.5 or 0.5,0.5,0.5")
    ] = None,
    std: Annotated[
        str | None, Option(help="Standard deviation of pixels, in the same format as --mean")
    ] = None,
    coords: options.Coords = None,
    patch_size: options.PatchSize = None,
    level: options.Level = None,
    mpp: options.Mpp = None,
    magnification: options.Magnification = None,
    crop: Annotated[
        int, Option(min=1, help="Side of the centre crop that is encoded, in pixels")
    ] = 224,
    normalise: Annotated[
        Literal["l2", "none"], Option(help="Normalisation of features: l2 scales them to length 1")
    ] = "l2",
    dtype: Annotated[
        Literal["float16", "float32"], Option(help="Data type of stored features")
    ] = "float16",
    skip_errors: options.SkipErrors = False,
) -> None:
    """Encode the patches of slides, and store the features, one HDF5 file per slide.

    Finished slides are skipped, and failed ones are tried again. Several processes can run the same
    command, also on other machines (torchrun, a job array): they share the slides through DIR.
    `ips slides status DIR` shows the progress.
    """
    from ips.slides.coords import Resolution
    from ips.slides.encoder import build_extractor

    extractor = build_extractor(
        encoder,
        weights=weights,
        stages=stages,
        width=width,
        mean=_channel_values("--mean", mean),
        std=_channel_values("--std", std),
        crop=crop,
        normalise=normalise,
        dtype=dtype,
    )
    with hints(skip_errors=skip_errors):
        states = api.extract_features(
            paths,
            out=out,
            extractor=extractor,
            coords=coords,
            resolution=Resolution(patch_size, level, mpp, magnification),
            skip_errors=skip_errors,
            console=err,
        )
    _print_states(states, out)
    if any(state.state == "failed" for state in states):
        raise typer.Exit(1)


@slides.command()
def status(
    folder: Annotated[Path, Argument(metavar="DIR", help="Output folder of `ips slides features`")],
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="SLIDE", help="Slide files, or folders of slides, to count those left"),
    ] = None,
) -> None:
    """Show which slides of `ips slides features` are done, failed, in progress or left."""
    _print_states(api.feature_status(folder, slides=paths or ()), folder)


def _print_states(states: Sequence[SlideState], folder: Path) -> None:
    words: dict[State, str] = {
        "done": "done",
        "empty": "without tissue",
        "failed": "failed",
        "working": "in progress",
        "pending": "left",
    }
    rows = [(s.name, words[s.state], s.note) for s in states if s.state != "done"]
    if rows:
        print_table(["slide", "state", "note"], rows)
    counts = Counter(state.state for state in states)
    texts = [f"{counts[s]:,} {word}" for s, word in words.items() if counts[s] or s == "done"]
    print_message(f"{folder}: {', '.join(texts)}")


def _channel_values(option: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, 3):
        raise ConfigError(f"{option} {text}: expected one number, or three separated by commas")
    return values
