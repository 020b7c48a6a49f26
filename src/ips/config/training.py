"""How is learned: `augment`, `train`."""

from __future__ import annotations

from typing import Literal

from ips.config.section import Section, key, seed_key


class AugmentConfig(Section):
    """Random changes of the training images, different in every epoch."""

    kind: Literal["photographs", "slides", "documents", "none"] | None = key(
        None,
        "Preset of the settings below: photographs, slides, documents or none; null for "
        "photographs or slides with a table of images, else none",
    )
    flips: Literal["none", "horizontal", "both"] | None = key(
        None, "Mirrored patches: none, horizontal, or both, also top to bottom"
    )
    turns: bool | None = key(None, "Quarter turns of patches")
    size: float | None = key(
        None, "Largest relative change of the size of what patches show", ge=0, le=1
    )
    tilt: float | None = key(None, "Largest rotation of patches in degrees", ge=0, le=45)
    colour: float | None = key(
        None, "Largest relative change of brightness, contrast and saturation", ge=0, lt=1
    )
    stain: float | None = key(
        None, "Largest relative change of the amount of each stain (H, E and DAB)", ge=0, lt=1
    )
    blur: float | None = key(
        None, "Largest standard deviation of a blur in pixels, of half the images", ge=0, le=10
    )
    shift: float | None = key(
        None, "Largest shift of the grid of patches, as a fraction of its stride", ge=0, le=0.5
    )


class TrainConfig(Section):
    """Optimisation."""

    epochs: int = key(150, "Number of epochs", ge=1)
    batch: int = key(16, "Number of images per step, on all devices together", ge=1)
    accumulate: int = key(1, "Number of batches per update of the weights", ge=1)
    lr: float | None = key(
        None,
        "Peak learning rate; null for 0.0005 with a table and a pretrained encoder, else 0.001",
        gt=0,
    )
    encoder_lr: float = key(1.0, "Learning rate of the encoder as a factor of lr", gt=0)
    weight_decay: float = key(0.1, "Weight decay of AdamW", ge=0)
    warmup: float | None = key(
        None, "Epochs of linear warm-up; null for a tenth of all epochs, at most 10", ge=0
    )
    clip: float | None = key(
        None, "Maximum norm of the gradient; null for no limit, or dps.clip", gt=0
    )
    smoothing: float = key(0.0, "Label smoothing, such as 0.1", ge=0, lt=1)
    balance: Literal["weights", "lopsided", "sampling", "none"] | None = key(
        None,
        "Balancing of classes in a table: weights in the loss, lopsided for weights of those tasks "
        "only in which one of two classes has 3 times the images of the other, sampling of rare "
        "classes more often, or none; null for lopsided if there is such a task, else none",
    )
    result: Literal["best", "last"] | None = key(
        None,
        "Epoch of the final model: best on the validation images, or last; null for best with a "
        "table that has validation images, else last",
    )
    monitor: Literal["score", "loss"] = key(
        "score", "What the best epoch is chosen by: mean score of all tasks, or loss"
    )
    patience: int | None = key(
        None, "Epochs without improvement after which training stops; null for no limit", ge=1
    )
    start: Literal["features", "patches", "attention"] | None = key(
        None,
        "How patches are selected until the model has begun to learn: features, by attention that "
        "first learns from stored embeddings of all patches; patches, by a classifier of single "
        "patches; or attention, as in the paper; null for features with ips, a table and a "
        "pretrained encoder, else patches with ips, else attention",
    )
    restarts: int = key(
        2,
        "How often a training may start again, at a lower learning rate, if the model has not "
        "begun to learn",
        ge=0,
        le=2,
    )
    seed: int = seed_key(
        "Random seed of weights, dropout, augmentation, and the order of images and patches"
    )
    slice: int | None = key(
        None, "Number of patches embedded at once in training, to save memory; null for all", ge=1
    )
    workers: int = key(
        0, "Number of processes per device that read pixels, with select.load=eager", ge=0
    )
    devices: int = key(1, "Number of GPUs per machine, or of processes without a GPU", ge=1)
    nodes: int = key(1, "Number of machines; several need torchrun or SLURM", ge=1)
    strategy: Literal["ddp", "ddp-gloo"] = key(
        "ddp",
        "How several devices exchange gradients: ddp, with NCCL between GPUs and gloo without, or "
        "ddp-gloo, with gloo between GPUs, too",
    )
    sync_batchnorm: bool | None = key(
        None,
        "Compute the statistics of BatchNorm over the batch of all devices, which needs GPUs; null "
        "for yes with several GPUs",
    )
    checkpoint_minutes: float = key(
        10, "Minutes after which the state is saved, also within an epoch; 0 for every step", ge=0
    )
    loggers: list[Literal["wandb", "mlflow"]] = key(
        [], "Further logs, beside TensorBoard and CSV: wandb (Weights & Biases), mlflow"
    )
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = key(
        "32-true", "Floating-point precision: 32-true, 16-mixed or bf16-mixed"
    )
    deterministic: bool = key(
        False, "Use only deterministic operations, and name the one that is not; may be slower"
    )

    @property
    def warmup_epochs(self) -> float:
        """Epochs of warm-up; 10 of 150 in the paper, fewer in a short run."""
        return min(10, self.epochs / 10) if self.warmup is None else self.warmup
