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
from ips.work import Place

if TYPE_CHECKING:
    from ips.slides.states import SlideState, State

slides = typer.Typer(
    help="Prepare whole slides: find their tissue, and store features.", no_args_is_help=True
)
app.add_typer(slides, name="slides")


@slides.command()
def tissue(
    paths: options.Slides,
    out: options.OutFolder,
    encoder: Annotated[
        str | None,
        Option(
            help="Preset of `ips slides encoders` whose patch size and resolution to use, unless "
            "others are given"
        ),
    ] = None,
    patch_size: Annotated[
        int | None, Option(help="Side of a patch in pixels as it is read; by default 256")
    ] = None,
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
    min_share: Annotated[
        float, Option(min=0, max=1, help="Smallest share of a patch that must be tissue")
    ] = 0.01,
    edge: Annotated[
        Literal["drop", "pad", "fit"],
        Option(help="Patches across the slide's border: drop, pad with background, or fit inside"),
    ] = "fit",
    background: Annotated[
        Literal["auto", "bright", "dark"],
        Option(
            help="Brightness where there is no tissue: bright for stained slides, dark for "
            "fluorescence; auto decides for each slide"
        ),
    ] = "auto",
    skip_pen: Annotated[
        bool, Option("--skip-pen", help="Leave out marks of felt pens, on stained slides")
    ] = False,
    skip_blurred: Annotated[
        bool,
        Option(
            "--skip-blurred",
            help="Leave out patches far more blurred than others of their slide; reads every patch "
            "with tissue",
        ),
    ] = False,
    skip_errors: options.SkipErrors = False,
    shard: options.Shard = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
) -> None:
    """Find the patches of slides that contain tissue, and draw them for you to check.

    Patch coordinates are written to DIR/patches, thumbnails to DIR/thumbnails. Finished slides are
    not read again. A slide without tissue is reported and is not an error.
    """
    from ips.patches.tissue import TissueSettings
    from ips.slides.coords import Resolution, preset_resolution
    from ips.slides.presets import preset_named

    place = Place.parse(shard=shard, ray=ray, workers=workers)
    preset = None if encoder is None else preset_named(encoder)
    resolution = Resolution(patch_size, level, mpp, magnification)
    with hints(skip_errors=skip_errors):
        found = api.find_tissue(
            paths,
            out=out,
            resolution=resolution.filled(preset_resolution(preset)),
            settings=TissueSettings(tissue_level, min_share, background, skip_pen, skip_blurred),
            edge=edge,
            skip_errors=skip_errors,
            place=place,
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
            help="Encoder: a preset of `ips slides encoders` such as phikon-v2, with its patch "
            "size, resolution and normalisation; resnet18, resnet50, thin-resnet, timm:NAME, or "
            "hub:OWNER/REPO for a model that timm can load; by default the encoder stored in "
            "--weights, or resnet50"
        ),
    ] = None,
    weights: Annotated[
        str | None,
        Option(
            help="Weights of the encoder: a file such as that of `ips pretrain`, imagenet, "
            "hub:OWNER/REPO, or none for an untrained encoder; for a preset, by default its own "
            "from the hub, or a folder with model.safetensors"
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
    resize: Annotated[
        int | None,
        Option(
            min=1,
            help="Side to which patches are scaled before the crop; by default that of the preset, "
            "else no scaling",
        ),
    ] = None,
    crop: Annotated[
        int | None,
        Option(
            min=1,
            help="Side of the centre crop that is encoded, in pixels; by default that of the "
            "preset, else 224",
        ),
    ] = None,
    normalise: Annotated[
        Literal["l2", "none"] | None,
        Option(
            help="Normalisation of features: l2 scales them to length 1; by default none for a "
            "preset, else l2"
        ),
    ] = None,
    dtype: Annotated[
        Literal["float16", "float32"], Option(help="Data type of stored features")
    ] = "float16",
    layout: Annotated[
        Literal["ips", "trident"],
        Option(
            help="Layout of the output: ips, or trident for its folders and attributes, so that "
            "TRIDENT and other tools find the features"
        ),
    ] = "ips",
    skip_errors: options.SkipErrors = False,
    shard: options.Shard = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
    readers: options.Readers = None,
    device: options.Device = "auto",
) -> None:
    """Encode the patches of slides, and store the features, one HDF5 file per slide.

    Finished slides are skipped, and failed ones are tried again. Several processes, also on other
    machines, can fill the same folder, each with its --shard. `ips slides status DIR` shows how far
    they are.
    """
    from ips.slides.coords import Resolution
    from ips.slides.encoder import build_extractor
    from ips.slides.trident import trident_folder

    place = Place.parse(shard=shard, ray=ray, workers=workers, readers=readers)
    extractor = build_extractor(
        encoder,
        weights=weights,
        stages=stages,
        width=width,
        mean=_channel_values("--mean", mean),
        std=_channel_values("--std", std),
        resize=resize,
        crop=crop,
        normalise=normalise,
        dtype=dtype,
    )
    resolution = Resolution(patch_size, level, mpp, magnification)
    if layout == "trident":
        filled = resolution.filled(extractor.resolution)
        out = trident_folder(out, filled, encoder=encoder or extractor.label.partition(" ")[0])
    with hints(skip_errors=skip_errors):
        states = api.extract_features(
            paths,
            out=out,
            extractor=extractor,
            coords=coords,
            resolution=resolution,
            layout=layout,
            skip_errors=skip_errors,
            place=place,
            console=err,
        )
    _print_states(states, out)
    if any(state.state == "failed" for state in states):
        raise typer.Exit(1)


@slides.command()
def encoders() -> None:
    """List the presets of `ips slides features --encoder`: public encoders of pathology.

    Access login means that the Hugging Face hub asks for consent to the terms: ask for access on
    the page of the repository, and run `hf auth login` once.
    """
    from ips.slides.presets import PRESETS

    columns = ["name", "patch", "features", "licence", "access"]
    rows = [
        (
            preset.name,
            f"{preset.patch_size} px" + (f" at {preset.mpp:g} µm" if preset.mpp else ""),
            f"{preset.dim:,}",
            preset.licence,
            "login" if preset.gated else "open",
        )
        for preset in PRESETS.values()
    ]
    print_table(columns, rows)


@slides.command()
def status(
    folder: Annotated[Path, Argument(metavar="DIR", help="Output folder of `ips slides features`")],
    paths: Annotated[
        list[Path] | None,
        Argument(metavar="SLIDE", help="Slide files, or folders of slides, to count those left"),
    ] = None,
) -> None:
    """Show which slides of `ips slides features` are done, failed or left."""
    _print_states(api.feature_status(folder, slides=paths or ()), folder)


def _print_states(states: Sequence[SlideState], folder: Path) -> None:
    words: dict[State, str] = {
        "done": "done",
        "empty": "without tissue",
        "failed": "failed",
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
