"""`ips slides features` and `ips slides status`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ips.cli.app import err, say, show_table, told
from ips.cli.slides import slides

if TYPE_CHECKING:
    from torch import nn

    from ips.slides.sharing import SlideState, State

_UNTRAINED = "none"


class Normalise(StrEnum):
    """What is done to the features of a patch."""

    l2 = "l2"
    none = "none"


class Dtype(StrEnum):
    """Of stored features."""

    half = "float16"
    single = "float32"


@slides.command()
@told
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
    made = _build(encoder, weights, stages=stages, width=width)
    extractor = FeatureExtractor(
        made.net.to(_device()),
        name=made.name,
        channels=made.channels,
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
@told
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
        show_table(["slide", "state", "note"], rows)
    counts = Counter(state.state for state in states)
    shown = [f"{counts[s]:,} {word}" for s, word in words.items() if counts[s] or s == "done"]
    say(f"{folder}: {', '.join(shown)}")


@dataclass(frozen=True)
class _Encoder:
    """An encoder, what to call it and how its pixels are scaled."""

    net: nn.Module
    name: str
    mean: Sequence[float]
    std: Sequence[float]
    channels: int = 3


def _build(
    encoder: str | None, weights: str | None, *, stages: int | None, width: int | None
) -> _Encoder:
    if encoder is not None and encoder.startswith(("timm:", "hub:")):
        return _from_timm(encoder, weights)
    return _ours(encoder, weights, stages=stages, width=width)


def _ours(
    encoder: str | None, weights: str | None, *, stages: int | None, width: int | None
) -> _Encoder:
    import torch

    from ips.errors import ConfigError
    from ips.nn import ENCODERS
    from ips.nn.weights import load_weights, normalisation

    noted = _noted(weights)
    name = encoder or noted.get("name", "resnet50")
    if name not in ENCODERS:
        known = ", ".join([*ENCODERS, "timm:NAME", "hub:OWNER/REPO"])
        raise ConfigError(f"--encoder {name}: there is none of this name, only {known}")
    if weights is None:
        raise ConfigError(
            f"--encoder {name} needs --weights: a file, imagenet or hub:OWNER/REPO; or none for "
            "what an untrained encoder sees"
        )
    torch.manual_seed(0)  # an untrained one is the same in every process
    channels = int(noted.get("inputs", 3))
    net = ENCODERS[name](
        stages=stages or noted.get("stages", 4),
        width=width or noted.get("width", 64),
        channels=channels,
    )
    if weights != _UNTRAINED:
        load_weights(net, weights)
    mean, std = normalisation(weights) or (noted.get("mean", [0.0]), noted.get("std", [1.0]))
    return _Encoder(net, f"{name} {Path(weights).name}", mean, std, channels)


def _noted(weights: str | None) -> dict[str, Any]:
    """What a file of weights says of its encoder, as `ips pretrain` notes it."""
    from safetensors import SafetensorError, safe_open

    if weights is None or Path(weights).suffix != ".safetensors" or not Path(weights).is_file():
        return {}
    try:
        with safe_open(weights, framework="pt") as file:
            config = json.loads((file.metadata() or {}).get("config", "{}"))
            return dict(config.get("encoder", {}))
    except (SafetensorError, ValueError, TypeError, AttributeError):
        return {}  # a damaged file is told where its weights are read


def _from_timm(encoder: str, weights: str | None) -> _Encoder:
    from importlib import import_module

    from ips.errors import ConfigError

    if weights not in (None, _UNTRAINED):
        raise ConfigError(
            f"--weights {weights} with --encoder {encoder}, which has its own: leave it out, or "
            "give none for an untrained one"
        )
    kind, _, name = encoder.partition(":")
    try:
        net = import_module("timm").create_model(
            name if kind == "timm" else f"hf-hub:{name}", pretrained=weights is None, num_classes=0
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--encoder {encoder} needs the package {error.name}, which is not installed: "
            f"pip install timm"
        ) from error
    except Exception as error:  # it and what it imports raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"--encoder {encoder}: timm could not make it ({reason}): check the name, the network "
            "and, for a hub's model, your login"
        ) from error
    scaled = net.pretrained_cfg
    return _Encoder(net, encoder, scaled["mean"], scaled["std"])


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
