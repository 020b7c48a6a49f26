"""The steps of training, validation and test of a model.

Letters: B images of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ips.config import Config
from ips.errors import IPSError, listed
from ips.models import Net, Output, ScoreTable, Screen, Selected, SelectingNet
from ips.nn import PatchLead
from ips.patches import PatchSource
from ips.predictions import PredictionCollector
from ips.selection import Selection
from ips.tasks import build_tasks
from ips.training.batches import Batch
from ips.training.harness import BaseLearner
from ips.training.localiser import Localiser
from ips.training.losses import constant_loss, mean_loss, task_shares, total_loss
from ips.training.refresh import CachedScores

if TYPE_CHECKING:
    from torchmetrics import Metric

#: Receives the images of a batch, the output of the model and the patches that it selected.
BatchObserver = Callable[[Sequence[PatchSource], Output, Selection], None]


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
        cache: scores of earlier epochs, to score only some patches; None to score all.

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
        cache: CachedScores | None = None,
    ) -> None:
        hint = f"lower train.lr={config.train.lr}, or look for broken images or labels"
        super().__init__(seed=config.train.seed, hint=hint)
        self.net, self.config, self.observer, self.weights = net, config, observer, weights
        self.localiser = localiser
        self.lead, self.cache, self.settled = lead, cache, False
        self.first_step, self.lr_factor = 0, 1.0
        self.tasks = build_tasks(config.tasks)
        # Plain dicts, so that the metrics stay out of the state_dict.
        self.metrics: dict[str, Metric] = {}
        self.validation_metrics: dict[str, Metric] = {}
        self.losses: list[Tensor] = []
        self.task_losses: list[Tensor] = []  # of the tasks, and of the lead
        self.spreads: list[Tensor] = []  # see `_spread`
        self.answers: dict[str, Tensor] = {}  # see `Task.answer_statistics`
        self.shares: list[Tensor] = []  # of the tasks in the losses
        self.validation_losses: list[Tensor] = []  # of each image
        self.collector = PredictionCollector(self.tasks)

    def on_train_epoch_start(self) -> None:
        """Reset the metrics, and freeze the BatchNorms that Lightning put into training mode."""
        self.metrics, self.losses = self._new_metrics(), []
        self.task_losses, self.spreads, self.answers, self.shares = [], [], {}, []
        if self.config.encoder.freeze_norm:
            freeze_norms(self.net.encoder)

    def batch_images(self, batch: Batch, batch_idx: int) -> list[str]:
        return [source.name for source in batch.sources]

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.seed_step(batch_idx)
        seed, labels = self.seed + self.step_number(batch_idx), batch.labels
        chosen = None
        if isinstance(self.net, SelectingNet):
            chosen = self._choose(self.net, batch, seed)
            output = self.net.learn(chosen, self.lead)
        else:
            load = self.config.select.load
            progress = self.global_step / self.trainer.estimated_stepping_batches
            output = self.net.forward_train(batch.sources, load=load, seed=seed, progress=progress)
        loss = self._loss(output, labels)
        self.losses.append(loss.detach())  # without that of the lead, as in validation
        parts = [mean_loss(self.tasks, output.logits, labels, **self._loss_options)]
        if output.lead_logits is not None:
            parts.append(mean_loss(self.tasks, output.lead_logits, labels, **self._loss_options))
            loss = loss + parts[-1]
        scored = chosen is not None and chosen.tables is not None and not self.lead_chooses
        if chosen is not None and scored and self.screen is not None:
            loss = loss + self.screen.distil(batch.sources, chosen)
        self.check_finite(loss)
        self._update(self.metrics, output, labels)
        shares = task_shares(self.tasks, labels)
        if shares.any():
            self.task_losses.append(torch.stack(parts).detach())  # (1,) or (2,)
            self.shares.append(shares)
        if output.attention is not None:
            self.spreads.append(_spread(output.attention.detach()))
        for name, task in self.tasks.items():
            self.answers[name] = self.answers.get(name, 0) + task.answer_statistics(labels[name])
        return loss

    def _choose(self, net: SelectingNet, batch: Batch, seed: int) -> Selected:
        """Select M patches of each image."""
        load = self.config.select.load
        if self.settled and self.cache is not None:
            return self.cache.choose(net, batch, load=load, seed=seed)
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
        """Mean losses of the epoch: of the tasks, of the lead, and of the best constant answer.

        The loss of the lead is that of the tasks if there is none.
        """
        losses = torch.stack(self.task_losses).mean(dim=0)
        shares = torch.stack(self.shares).mean(dim=0)
        chance = constant_loss(self.tasks, self.answers, shares=shares, **self._loss_options)
        return torch.stack([losses[0], losses[-1], chance.to(losses)])

    def attention_spread(self) -> Tensor | None:
        """Means of the epoch: patches that attention is spread over, and all that it could be.

        None without attention.
        """
        return torch.stack(self.spreads).mean(dim=0) if self.spreads else None

    def reset(self, net: Net) -> None:
        """Take the weights of ``net``, which are new, and forget what was learnt beside them."""
        self.net.load_state_dict(net.state_dict())
        if self.lead is not None:
            self.lead.reset()
        if self.cache is not None:
            self.cache.forget()

    def on_validation_epoch_start(self) -> None:
        self.validation_metrics, self.validation_losses = self._new_metrics(), []

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        output, _ = self._score(self.validation_metrics, batch)
        loss = self._loss(output, batch.labels).detach()
        if task_shares(self.tasks, batch.labels).any():
            self.validation_losses += [loss] * len(batch.sources)  # the last may be smaller

    def on_test_epoch_start(self) -> None:
        self.metrics = self._new_metrics()
        self.collector = PredictionCollector(self.tasks)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        tables = None if self.localiser is None else self.localiser.tables(batch.sources)
        output, selection = self._score(self.metrics, batch, tables)
        self.collector.add([source.name for source in batch.sources], output.logits, batch.labels)
        if self.localiser is not None and tables is not None:
            self.localiser.add(output, selection, tables)
        if self.observer is not None:
            self.observer(batch.sources, output, selection)

    def scores(self) -> dict[str, float]:
        """Score of each task since the start of the training epoch or of the test.

        The score is nan where it is undefined, such as an AUC with images of a single class.
        """
        return _compute(self.metrics)

    def epoch_metrics(self) -> dict[str, float]:
        values = {"loss": float(torch.stack(self.losses).mean())}
        values |= {f"train_{task}": score for task, score in self.scores().items()}
        if self.cache is not None:
            values |= self.cache.metrics()
        if self.validation_losses:
            values["loss_validation"] = self.validation_loss()
        return values | {f"validation_{k}": v for k, v in self.validation_scores().items()}

    def validation_scores(self) -> dict[str, float]:
        """Score of each task on the validation images, like `scores`; empty without any."""
        return _compute(self.validation_metrics)

    def validation_loss(self) -> float:
        """Mean loss of the validation images, which is that of training."""
        return float(torch.stack(self.validation_losses).mean())

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

    def _new_metrics(self) -> dict[str, Metric]:
        return {name: task.metric().to(self.device) for name, task in self.tasks.items()}

    def _score(
        self, metrics: dict[str, Metric], batch: Batch, tables: Sequence[ScoreTable] | None = None
    ) -> tuple[Output, Selection]:
        """Predict a batch and add it to the metrics; every patch is embedded only once.

        ``tables``, one per image, receive the scores of all patches.
        """
        sources, labels, _ = batch
        load = self.config.select.load
        output, selection = self.net.forward_eval(sources, load=load, seed=self.seed, tables=tables)
        finite = [x.isfinite().reshape(len(x), -1).all(dim=1) for x in output.logits.values()]
        good = torch.stack(finite).all(dim=0).tolist()  # of each image
        if not all(good):
            images = [source.name for source, ok in zip(sources, good, strict=True) if not ok]
            raise IPSError(
                f"the prediction is infinite or not a number for {listed(images, most=8)}: look "
                "for broken images or features"
            )
        self._update(metrics, output, labels)
        return output, selection

    def _update(
        self, metrics: dict[str, Metric], output: Output, labels: Mapping[str, Tensor]
    ) -> None:
        for name, task in self.tasks.items():
            task.update(metrics[name], output.logits[name], labels[name])


def _spread(attention: Tensor) -> Tensor:
    """Patches with equal shares that have the entropy of ``(B, T, H, K)`` attention, and K."""
    a = attention.mean(dim=(1, 2))  # (B, K)
    spread = torch.xlogy(a, a).sum(dim=1).neg().exp().mean()
    return torch.stack([spread, (a > 0).sum(dim=1).to(a).mean()])


def _compute(metrics: Mapping[str, Metric]) -> dict[str, float]:
    # Metrics compute in float32: round to six digits, so that 360 of 400 gives 0.9.
    return {
        name: round(float(metric.compute()), 6) if metric.update_called else math.nan
        for name, metric in metrics.items()
    }
