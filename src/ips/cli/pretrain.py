"""`ips pretrain`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from ips import api
from ips.cli.allocator import keep_freed_memory
from ips.cli.app import app, err, hints, print_message
from ips.cli.options import (
    Coords,
    Device,
    Level,
    Magnification,
    Mpp,
    Resume,
    SkipErrors,
    TrainPatchSize,
)


@app.command()
def pretrain(
    data: Annotated[
        list[Path],
        Argument(
            metavar="DATA",
            help="Images or slides, folders of them, or CSV files with a path column",
        ),
    ],
    run: Annotated[Path, Option(metavar="DIR", help="Run folder")] = Path("runs/pretrain"),
    coords: Coords = None,
    encoder: Annotated[
        str, Option(help="Encoder to train: resnet18, resnet50 or thin-resnet")
    ] = "resnet50",
    stages: Annotated[int, Option(min=1, max=4, help="Number of encoder stages")] = 4,
    width: Annotated[
        int, Option(min=1, max=512, help="Number of channels of the first encoder stage")
    ] = 64,
    patch_size: TrainPatchSize = None,
    level: Level = None,
    mpp: Mpp = None,
    magnification: Magnification = None,
    scale: Annotated[
        float | None,
        Option(
            min=0.001,
            max=1,
            help="Part of the full resolution to read at, such as 0.5, instead of a level",
        ),
    ] = None,
    channels: Annotated[
        Literal["rgb", "grey", "as-is"] | None,
        Option(
            help="Channels that images are converted to; by default as they are, or rgb if they "
            "differ"
        ),
    ] = None,
    white: Annotated[
        float | None,
        Option(
            min=0.001,
            help="Value that becomes 255 in images of more than 8 bits; by default the largest "
            "that the file says it uses, or else can store",
        ),
    ] = None,
    patches_per_slide: Annotated[
        int, Option(min=1, help="Number of patches sampled from each slide in every epoch")
    ] = 1000,
    epochs: Annotated[
        int, Option(min=1, help="Number of epochs; a tenth of them, at most 10, are warm-up")
    ] = 500,
    batch: Annotated[int, Option(min=1, help="Batch size, over all devices")] = 256,
    optimizer: Annotated[
        Literal["lars", "adamw"],
        Option(help="Optimizer: lars as published, adamw for small batches"),
    ] = "lars",
    lr: Annotated[
        float | None,
        Option(help="Peak learning rate; by default 0.2 x batch / 256 for lars, 0.001 for adamw"),
    ] = None,
    tau: Annotated[
        float, Option(help="Initial decay of the moving average; use 0.99 for short runs")
    ] = 0.996,
    hidden: Annotated[
        int, Option(min=1, help="Number of hidden units of projector and predictor")
    ] = 4096,
    projection: Annotated[int, Option(min=1, help="Output size of BYOL's projector")] = 256,
    seed: Annotated[
        int, Option(min=0, max=2**31, help="Random seed of weights, patches and augmentation")
    ] = 0,
    precision: Annotated[
        Literal["32-true", "16-mixed", "bf16-mixed"],
        Option(help="Floating-point precision of training"),
    ] = "32-true",
    devices: Annotated[
        int, Option(min=1, help="Number of GPUs per machine, or of CPU processes without a GPU")
    ] = 1,
    nodes: Annotated[
        int, Option(min=1, help="Number of machines; several need torchrun or SLURM")
    ] = 1,
    checkpoint_minutes: Annotated[
        float, Option(min=0, help="Minutes after which the state is saved, also within an epoch")
    ] = 10,
    workers: Annotated[
        int, Option(min=0, help="Number of processes that read patches; use several with a GPU")
    ] = 0,
    skip_errors: SkipErrors = False,
    resume: Resume = False,
    device: Device = "auto",
) -> None:
    """Train an encoder on patches without labels (BYOL), and draw nearest neighbours.

    The defaults are those of the paper, which also used --devices 4 and --precision 16-mixed. On a
    laptop, train a thin-resnet of width 16 on patches of 64 px in batches of 32, with --hidden 256,
    --projection 64, --optimizer adamw and --tau 0.99.
    """
    options = locals()
    from ips.pretraining.settings import Settings

    # Every setting is an option of the same name.
    values = {setting.name: options[setting.name] for setting in fields(Settings)}
    settings = Settings(**values | {"data": tuple(data)})
    keep_freed_memory()
    hint = f"run the same command with --resume to continue (run folder {run})"
    with hints(hint, skip_errors=skip_errors):
        file = api.pretrain(
            settings,
            run=run,
            resume=resume,
            devices=devices,
            nodes=nodes,
            checkpoint_minutes=checkpoint_minutes,
            workers=workers,
            skip_errors=skip_errors,
            console=err,
        )
    if file is not None:
        print_message(f"{run}: encoder.safetensors, metrics.csv, figures/neighbours.png")
        shape = f"{{name: {encoder}, stages: {stages}, width: {width}, weights: {file}}}"
        print_message(f"train a classifier with it, in a YAML file: encoder: {shape}")
