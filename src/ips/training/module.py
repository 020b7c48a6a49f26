"""The steps of training, validation and test of a model.

Letters: B images of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ips.config import Config
from ips.errors import IPSError, listed
from ips.models import Net, Output, Screen, Selected, SelectingNet
from ips.nn import PatchLead
from ips.predictions import PredictionCollector
from ips.selection import Selection
from ips.tasks import build_tasks
from ips.training.audit import AuditedSelection
from ips.training.batches import Batch
from ips.training.harness import BaseLearner
from ips.training.joining import Part, all_parts, whole_batch
from ips.training.localiser import Localiser
from ips.training.losses import mean_loss, task_shares, total_loss
from ips.training.tally import Tally

#: Receives the names of the images of a batch, the output of the model and the patches selected.
BatchObserver = Callable[[Sequence[str], Output, Selection], None]


def freeze_norms(encoder: nn.Module) -> None:
    """Put BatchNorms into evaluation mode, so that they keep their statistics."""
    for module in encoder.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def learning_rate_factor(step: int, *, warmup: int, total: int) -> float:
    """Share of the peak learning rate at ``step`` of ``total`` (Appendix D.1).

    Linear warm-up, then cosine decay to a thousandth. Steps count from 0, but both
    phases use ``step + 1``, as the authors' code does.

    >>> [round(learning_rate_factor(s, warmup=2, total=10), 3) for s in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 0.962, 0.309, 0.001]
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = min((step + 1 - warmup) / max(total - warmup, 1), 1.0)
    return 0.001 + 0.999 * 0.5 * (1 + math.cos(math.pi * progress))


class Learner(BaseLearner):
    """Trains a model on the labels of its tasks (Algorithm 1).

    Args:
        net: the model.
        config: resolved config of the run.
        observer: callback that receives every test batch.
        localiser: compares the attention to test images with their objects.
        weights: weights of the classes in the loss by task; None for equal ones.
        lead: classifiers of single patches that lead the start; None for a start by attention.
        shortlists: chooses the patches that are scored once training has begun; None for all.

    Attributes:
        settled: whether the training has begun, so that attention chooses the patches.
        first_step: the schedule of the learning rate begins with this step.
        lr_factor: factor of the learning rate.
    """

    def __init__(
        self,
        net: Net,
        config: Config,
        *,
        observer: BatchObserver | None = None,
        localiser: Localiser | None = None,
        weights: Mapping[str, Tensor] | None = None,
        lead: PatchLead | None = None,
        shortlists: AuditedSelection | None = None,
    ) -> None:
        hint = f"lower train.lr={config.train.lr}, or look for broken images or labels"
        super().__init__(seed=config.train.seed, hint=hint)
        self.net, self.config, self.observer, self.weights = net, config, observer, weights
        self.localiser = localiser
        self.lead, self.shortlists, self.settled = lead, shortlists, False
        self.first_step, self.lr_factor = 0, 1.0
        self.tasks = build_tasks(config.tasks)
        self.tally = Tally(self.tasks, self.device)  # of the training epoch, or of the test
        self.validation: Tally | None = None
        self._validating = self._resumed_validation = False
        self.collector = PredictionCollector(self.tasks)

    def begin_epoch(self) -> None:
        """Reset the metrics, and freeze the BatchNorms that Lightning put into training mode."""
        self.tally = Tally(self.tasks, self.device)
        if self.config.encoder.freeze_norm:
            freeze_norms(self.net.encoder)

    def epoch_state(self) -> dict[str, Any]:
        validation = self.validation.state() if self.validation and self._validating else None
        shortlists = self.shortlists.state() if self.shortlists and self.settled else None
        return {"train": self.tally.state(), "validation": validation, "shortlists": shortlists}

    def load_epoch_state(self, state: dict[str, Any]) -> None:
        self.tally.load(state["train"])
        if self.shortlists is not None and state["shortlists"] is not None:
            self.shortlists.load(state["shortlists"])
        if state["validation"] is not None:
            self.validation = Tally(self.tasks, self.device)
            self.validation.load(state["validation"])
            self._resumed_validation = True

    def batch_images(self, batch: Batch, batch_idx: int) -> list[str]:
        return [source.name for source in batch.sources]

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.seed_step(batch_idx)
        seed, screening = self.seed + self.step_number(batch_idx), None
        if isinstance(self.net, SelectingNet):
            chosen = self._choose(self.net, batch, seed)
            own = self.net.learn(chosen, self.lead)
            if self.screen is not None and chosen.tables is not None and not self.lead_chooses:
                screening = self.screen.distil(batch.sources, chosen)
        else:
            load, seed = self.config.select.load, seed + 1_000_003 * self.global_rank
            progress = self.global_step / self.trainer.estimated_stepping_batches
            own = self.net.forward_train(batch.sources, load=load, seed=seed, progress=progress)
        parts = self._all_parts(Part.of(batch, own) if batch.counted else None)
        output, labels = whole_batch(
            parts,
            own,
            rank=self.global_rank,
            world=self.trainer.world_size,
            counted=batch.counted,
        )
        if screening is not None:  # a mean over the images of this device
            images = sum(len(part.names) for part in parts)
            share = len(batch.numbers) / images if batch.counted else 0.0
            screening = screening * (share * self.trainer.world_size)
        return self._learn(output, labels, screening)

    def _learn(
        self, output: Output, labels: Mapping[str, Tensor], screening: Tensor | None
    ) -> Tensor:
        """The loss of a whole batch, which is added to the tally, and that of the screen."""
        loss = self._loss(output, labels)
        self.tally.losses.append(loss.detach())  # without that of the lead, as in validation
        parts = [mean_loss(self.tasks, output.logits, labels, **self._loss_options)]
        if output.lead_logits is not None:
            parts.append(mean_loss(self.tasks, output.lead_logits, labels, **self._loss_options))
            loss = loss + parts[-1]
        if screening is not None:
            loss = loss + screening
        self.check_finite(loss)
        self.tally.add(output.logits, labels)
        shares = task_shares(self.tasks, labels)
        if shares.any():
            self.tally.task_losses.append(torch.stack(parts).detach())  # (1,) or (2,)
            self.tally.shares.append(shares)
        if output.attention is not None:
            self.tally.spreads.append(_spread(output.attention.detach()))
        self.tally.add_labels(labels)
        return loss

    def _choose(self, net: SelectingNet, batch: Batch, seed: int) -> Selected:
        """Select M patches of each image."""
        load = self.config.select.load
        if self.settled and self.shortlists is not None:
            return self.shortlists.choose(net, batch, load=load, seed=seed)
        by = self.lead if self.lead_chooses else None
        return net.select_for_training(batch.sources, load=load, seed=seed, by=by)

    @property
    def screen(self) -> Screen | None:
        """The network that predicts scores, if the model has one."""
        return self.net.screen if isinstance(self.net, SelectingNet) else None

    @property
    def lead_chooses(self) -> bool:
        """Whether classifiers of single patches choose the patches."""
        return self.lead is not None and not self.settled

    def start_losses(self) -> Tensor:
        """Mean losses of the epoch, see `Tally.start_losses`."""
        return self.tally.start_losses(**self._loss_options)

    def attention_spread(self) -> Tensor | None:
        """Means of the epoch: patches that attention is spread over, and all that it could be.

        None without attention.
        """
        return self.tally.spread()

    def reset(self, net: Net) -> None:
        """Take the weights of ``net``, which are new, and forget what was learnt beside them."""
        self.net.load_state_dict(net.state_dict())
        if self.lead is not None:
            self.lead.reset()
        if self.shortlists is not None:
            self.shortlists.forget()

    def on_validation_epoch_start(self) -> None:
        """Reset the metrics, unless a validation is resumed."""
        if not self._resumed_validation:
            self.validation = Tally(self.tasks, self.device)
        self._validating, self._resumed_validation = True, False

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        assert self.validation is not None
        for part in self._all_parts(self._predict(batch)):
            self.validation.add(part.output.logits, part.labels)
            loss = self._loss(part.output, part.labels).detach()
            if task_shares(self.tasks, part.labels).any():
                self.validation.losses += [loss] * len(part.names)  # the last may be smaller
        self.between_batches(self.trainer, self)

    def on_validation_epoch_end(self) -> None:
        self._validating = False

    def on_test_epoch_start(self) -> None:
        self.tally = Tally(self.tasks, self.device)
        self.collector = PredictionCollector(self.tasks)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        for part in self._all_parts(self._predict(batch, self.localiser)):
            assert part.selection is not None
            self.tally.add(part.output.logits, part.labels)
            self.collector.add(part.names, part.output.logits, part.labels)
            if self.localiser is not None and part.hits is not None:
                self.localiser.add(part.hits)
            if self.observer is not None:
                self.observer(part.names, part.output, part.selection)

    def scores(self) -> dict[str, float]:
        """Score of each task since the start of the training epoch or of the test."""
        return self.tally.scores()

    def epoch_metrics(self) -> dict[str, float]:
        values = {"loss": self.tally.loss()}
        values |= {f"train_{task}": score for task, score in self.scores().items()}
        if self.shortlists is not None:
            values |= self.shortlists.metrics()
        if self.validation is not None and self.validation.losses:
            values["loss_validation"] = self.validation_loss()
        return values | {f"validation_{k}": v for k, v in self.validation_scores().items()}

    def validation_scores(self) -> dict[str, float]:
        """Score of each task on the validation images, like `scores`; empty without any."""
        return {} if self.validation is None else self.validation.scores()

    def validation_loss(self) -> float:
        """Mean loss of the validation images, which is that of training."""
        assert self.validation is not None
        return self.validation.loss()

    def configure_optimizers(self) -> Any:
        train = self.config.train
        assert train.lr is not None
        optimizer = torch.optim.AdamW(
            self._parameter_groups(), lr=train.lr, weight_decay=train.weight_decay
        )
        total = int(self.trainer.estimated_stepping_batches)
        warmup = min(round(train.warmup_epochs * total / train.epochs), total)

        def factor(step: int) -> float:
            step, left = max(step - self.first_step, 0), total - self.first_step
            return self.lr_factor * learning_rate_factor(step, warmup=warmup, total=left)

        return self.scheduled(optimizer, factor)

    def _parameter_groups(self) -> Any:
        """The parameters, in two groups if the encoder has its own learning rate."""
        lr, factor = self.config.train.lr, self.config.train.encoder_lr
        if factor == 1:
            return self.parameters()
        assert lr is not None
        encoder = list(self.net.encoder.parameters())
        ids = {id(weight) for weight in encoder}
        rest = [weight for weight in self.parameters() if id(weight) not in ids]
        return [{"params": rest}, {"params": encoder, "lr": lr * factor}]

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Limit the gradient without networks that only observe, and must not change the model."""
        if gradient_clip_val is not None:
            observers = [part for part in (self.net.readout, self.screen) if part is not None]
            ids = {id(weight) for part in observers for weight in part.parameters()}
            weights = [weight for weight in self.parameters() if id(weight) not in ids]
            nn.utils.clip_grad_norm_(weights, gradient_clip_val)

    @property
    def _loss_options(self) -> dict[str, Any]:
        return {"weights": self.weights, "smoothing": self.config.train.smoothing}

    def _loss(self, output: Output, labels: Mapping[str, Tensor]) -> Tensor:
        return total_loss(self.net, self.tasks, output, labels, **self._loss_options)

    def _all_parts(self, part: Part | None) -> list[Part]:
        """The answers of all devices to a batch, or to a batch each."""
        return all_parts(part, world=self.trainer.world_size, device=self.device)

    def _predict(self, batch: Batch, localiser: Localiser | None = None) -> Part | None:
        """Predict a batch; every patch is embedded only once. None without images."""
        sources, load = batch.sources, self.config.select.load
        if not sources:
            return None
        tables = None if localiser is None else localiser.tables(sources)
        output, selection = self.net.forward_eval(sources, load=load, seed=self.seed, tables=tables)
        finite = [x.isfinite().reshape(len(x), -1).all(dim=1) for x in output.logits.values()]
        good = torch.stack(finite).all(dim=0).tolist()  # of each image
        if not all(good):
            images = [source.name for source, ok in zip(sources, good, strict=True) if not ok]
            raise IPSError(
                f"the prediction is infinite or not a number for {listed(images, most=8)}: look "
                "for broken images or features"
            )
        hits = None
        if localiser is not None and tables is not None:
            hits = localiser.compare(batch.numbers, output, selection, tables)
        return Part.of(batch, output, selection=selection, hits=hits)


def _spread(attention: Tensor) -> Tensor:
    """Patches with equal shares that have the entropy of ``(B, T, H, K)`` attention, and K."""
    a = attention.mean(dim=(1, 2))  # (B, K)
    spread = torch.xlogy(a, a).sum(dim=1).neg().exp().mean()
    return torch.stack([spread, (a > 0).sum(dim=1).to(a).mean()])
