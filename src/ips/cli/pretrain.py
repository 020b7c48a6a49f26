"""`ips pretrain`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ips.cli.app import app, err, say, told


class Optimizer(StrEnum):
    """Of BYOL."""

    lars = "lars"
    adamw = "adamw"


class Precision(StrEnum):
    """Of arithmetic."""

    single = "32-true"
    half = "16-mixed"
    brain = "bf16-mixed"


@app.command()
@told
def pretrain(
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...", help="images or slides, folders of them, or a CSV with a path column"
        ),
    ],
    run: Annotated[Path, typer.Option(metavar="DIR", help="where to put it")] = Path(
        "runs/pretrain"
    ),
    coords: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="where tissue is: what `ips slides tissue`, CLAM or TRIDENT wrote"
        ),
    ] = None,
    encoder: Annotated[str, typer.Option(help="resnet18, resnet50 or thin-resnet")] = "resnet50",
    stages: Annotated[int, typer.Option(min=1, max=4, help="of the encoder to keep")] = 4,
    width: Annotated[int, typer.Option(min=1, help="channels of its first stage")] = 64,
    patch_size: Annotated[
        int | None,
        typer.Option(min=4, help="side of a patch in pixels; as in --coords, or 256, by default"),
    ] = None,
    level: Annotated[int | None, typer.Option(min=0, help="of a pyramid to read")] = None,
    mpp: Annotated[
        float | None, typer.Option(help="micrometres per pixel to read at, instead of a level")
    ] = None,
    magnification: Annotated[
        float | None, typer.Option(help="to read at, such as 20, instead of a level")
    ] = None,
    patches_per_slide: Annotated[int, typer.Option(min=1, help="drawn anew in every epoch")] = 1000,
    epochs: Annotated[int, typer.Option(min=1, help="a tenth of them, 10 at most, warm up")] = 500,
    batch: Annotated[int, typer.Option(min=1, help="patches of a step, over all devices")] = 256,
    optimizer: Annotated[
        Optimizer, typer.Option(help="lars as published, adamw for small batches")
    ] = Optimizer.lars,
    lr: Annotated[
        float | None,
        typer.Option(help="at its peak; by default 0.2 x batch / 256 for lars, 0.001 for adamw"),
    ] = None,
    tau: Annotated[
        float, typer.Option(help="of the moving average at the start; 0.99 for short runs")
    ] = 0.996,
    hidden: Annotated[int, typer.Option(min=1, help="units of projector and predictor")] = 4096,
    projection: Annotated[int, typer.Option(min=1, help="size of a projection")] = 256,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="of weights, patches and views")] = 0,
    precision: Annotated[Precision, typer.Option(help="of arithmetic")] = Precision.single,
    devices: Annotated[int, typer.Option(min=1, help="GPUs, or processes where there is none")] = 1,
    workers: Annotated[
        int, typer.Option(min=0, help="processes that read patches; several pay with a GPU")
    ] = 0,
    skip_errors: Annotated[
        bool, typer.Option("--skip-errors", help="go on without slides that cannot be read")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in that folder, if there is one")
    ] = False,
) -> None:
    """Train an encoder on patches without labels (BYOL), and draw what it holds for alike.

    The defaults are the paper's, which also had --devices 4 and --precision 16-mixed. A laptop
    manages a thin-resnet of width 16 on patches of 64 px in batches of 32, with --hidden 256,
    --projection 64, --optimizer adamw and --tau 0.99.
    """
    from ips.errors import ImageError, PatchError
    from ips.pretraining.settings import Settings
    from ips.pretraining.train import pretrain as pretrain_run

    settings = Settings(
        data=tuple(data),
        coords=coords,
        patch_size=patch_size,
        level=level,
        mpp=mpp,
        magnification=magnification,
        encoder=encoder,
        stages=stages,
        width=width,
        hidden=hidden,
        projection=projection,
        patches_per_slide=patches_per_slide,
        epochs=epochs,
        batch=batch,
        optimizer=optimizer.value,
        lr=lr,
        tau=tau,
        seed=seed,
        precision=precision.value,
    )
    try:
        file = pretrain_run(
            settings,
            run,
            resume=resume,
            console=err,
            devices=devices,
            workers=workers,
            skip_errors=skip_errors,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"go on with the same command and --resume (run folder {run})"
        ) from None
    except (ImageError, PatchError) as error:
        if skip_errors:
            raise
        raise type(error)(f"{error} (or go on without it: --skip-errors)") from error
    if file is not None:
        say(f"{run}: encoder.safetensors, metrics.csv, figures/neighbours.png")
        shape = f"encoder.name={encoder}, encoder.stages={stages}, encoder.width={width}"
        say(f"train on it with encoder.weights={file}, {shape}")
