"""`ips slides features` and `ips slides status`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ips.cli.app import err, print_message, print_table, report_errors
from ips.cli.slides import slides

if TYPE_CHECKING:
    from ips.nn import BuiltEncoder
    from ips.slides.sharing import SlideState, State


class Normalise(StrEnum):
    """What is done to the features of a patch."""

    l2 = "l2"
    none = "none"


class Dtype(StrEnum):
    """Of stored features."""

    half = "float16"
    single = "float32"


@slides.command()
@report_errors
def features(
    paths: Annotated[list[Path], typer.Argument(metavar="SLIDES...", help="files or folders")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="folder to write to")],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="resnet18, resnet50, thin-resnet, timm:NAME, or hub:OWNER/REPO of a model that "
            "timm loads; by default the one that --weights says it is of, or resnet50"
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            help="of our encoders: a file such as `ips pretrain` makes, imagenet, "
            "hub:OWNER/REPO, or none for an untrained one"
        ),
    ] = None,
    stages: Annotated[int | None, typer.Option(min=1, max=4, help="of a ResNet to keep")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="channels of its first stage")] = None,
    mean: Annotated[
        str | None, typer.Option(help="of pixels between 0 and 1, as 0.5 or 0.5,0.5,0.5")
    ] = None,
    std: Annotated[str | None, typer.Option(help="the same for their standard deviation")] = None,
    coords: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="only patches at these places: what `ips slides tissue`, CLAM or TRIDENT wrote",
        ),
    ] = None,
    patch_size: Annotated[
        int | None,
        typer.Option(min=1, help="side of a patch in pixels; as in --coords, or 256, by default"),
    ] = None,
    level: Annotated[int | None, typer.Option(min=0, help="of a pyramid to read")] = None,
    mpp: Annotated[
        float | None, typer.Option(help="micrometres per pixel to read at, instead of a level")
    ] = None,
    magnification: Annotated[
        float | None, typer.Option(help="to read at, such as 20, instead of a level")
    ] = None,
    crop: Annotated[
        int, typer.Option(min=1, help="side of the middle of a patch that the encoder sees")
    ] = 224,
    normalise: Annotated[
        Normalise, typer.Option(help="l2 for features of length 1, or as the encoder gives them")
    ] = Normalise.l2,
    dtype: Annotated[Dtype, typer.Option(help="of stored features")] = Dtype.half,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="go on without slides that cannot be read")
    ] = False,
) -> None:
    """Turn the patches of slides into features, one HDF5 file a slide.

    Slides that are done are passed over, and what failed before is tried again. Start the same
    command as often as you like, also on other machines (torchrun, a job array): the processes
    share the slides through DIR. `ips slides status DIR` says how far they are.
    """
    from functools import partial

    from ips.errors import ImageError, PatchError
    from ips.progress import progress_bar
    from ips.slides.coords import Resolution, slide_patches
    from ips.slides.features import FeatureExtractor, extract_features
    from ips.slides.listing import list_slides

    files = {file.stem: file for file in list_slides(paths)}
    name, made = _build(encoder, weights, stages=stages, width=width)
    extractor = FeatureExtractor(
        made.net.to(_device()),
        name=name,
        channels=made.inputs,
        mean=made.mean if mean is None else _numbers("--mean", mean),
        std=made.std if std is None else _numbers("--std", std),
        crop=crop,
        normalise=normalise.value,
        dtype=dtype.value,
    )
    resolution = Resolution(patch_size, level=level, mpp=mpp, magnification=magnification)
    with progress_bar(err) as bar:
        whole = bar.add_task("slides", total=len(files), note="")
        slide = bar.add_task("patches", total=None, note="")

        def progress(name: str, done: int, total: int) -> None:
            if not done:
                finished = sum((out / f"{file}.h5").exists() for file in files)
                bar.update(whole, completed=finished)
                bar.reset(slide, total=total, note=name)
            bar.update(slide, completed=done)

        try:
            states = extract_features(
                files,
                out,
                extractor=extractor,
                open_slide=partial(slide_patches, resolution=resolution, coords=coords),
                skip_errors=skip_errors,
                progress=progress,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt("the same command goes on where this stopped") from None
        except (ImageError, PatchError) as error:
            raise type(error)(f"{error} (or go on without it: --skip-errors)") from error
        bar.update(whole, completed=sum(state.state == "done" for state in states))
    _show(states, out)
    if any(state.state == "failed" for state in states):
        raise typer.Exit(1)


@slides.command()
@report_errors
def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="folder of features")],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="SLIDES...", help="files or folders, to count what is left"),
    ] = None,
) -> None:
    """Say which slides of `ips slides features` are done, failed, being worked on or left."""
    from ips.errors import ConfigError
    from ips.slides.listing import list_slides
    from ips.slides.sharing import SharedFolder

    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder: give that of ips slides features")
    names = [file.stem for file in list_slides(paths)] if paths else None
    _show(SharedFolder(folder).states(names), folder)


def _show(states: Sequence[SlideState], folder: Path) -> None:
    """What is not done by name, all in numbers."""
    words: dict[State, str] = {
        "done": "done",
        "empty": "without tissue",
        "failed": "failed",
        "working": "being worked on",
        "pending": "left",
    }
    rows = [(s.name, words[s.state], s.note) for s in states if s.state != "done"]
    if rows:
        print_table(["slide", "state", "note"], rows)
    counts = Counter(state.state for state in states)
    shown = [f"{counts[s]:,} {word}" for s, word in words.items() if counts[s] or s == "done"]
    print_message(f"{folder}: {', '.join(shown)}")


def _build(
    name: str | None, weights: str | None, *, stages: int | None, width: int | None
) -> tuple[str, BuiltEncoder]:
    """Build the encoder; return it with the name to store in the feature files."""
    import torch

    from ips.errors import ConfigError
    from ips.nn import ENCODERS, build_encoder
    from ips.nn.weights import encoder_settings

    saved = encoder_settings(weights)
    name = name or saved.get("name", "resnet50")
    if weights is None and name in ENCODERS:
        raise ConfigError(
            f"--encoder {name} needs --weights: a file, imagenet or hub:OWNER/REPO; or none for "
            "an untrained encoder"
        )
    torch.manual_seed(0)  # an untrained encoder is the same in every process
    built = build_encoder(
        name,
        weights=weights,
        inputs=int(saved.get("inputs", 3)),
        stages=stages or saved.get("stages", 4),
        width=width or saved.get("width", 64),
    )
    built = replace(built, **{key: saved[key] for key in ("mean", "std") if key in saved})
    return (name if weights is None else f"{name} {Path(weights).name}"), built


def _device() -> str:
    """The GPU that torchrun means for this process, or the first, or the CPU."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    # A process may be shown one GPU of several only, and there may be more processes than GPUs.
    return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"


def _numbers(option: str, text: str) -> list[float]:
    from ips.errors import ConfigError

    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3):
        raise ConfigError(f"{option} {text}: expected a number, or three with commas between")
    return numbers
