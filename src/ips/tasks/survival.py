"""The time until an event, such as death, which was observed or not.

A label is a time and whether the event happened then (1), or the image was censored: nothing is
known after that time (0). The network predicts a risk, which is compared by its order alone.

Letters: B images, K time intervals.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.tasks.task import Kind, Score, Task

if TYPE_CHECKING:
    from torchmetrics import Metric


@dataclass(frozen=True, kw_only=True)
class Survival(Task):
    """A risk per image, from labels ``(B, 2)`` of times and events.

    Args:
        threshold: risk above which an image is of high risk, the median of the training images;
            None if it is unknown.
    """

    kind: Kind = field(default="survival", init=False)
    threshold: float | None = None

    @property
    def metric_name(self) -> Score:
        return "concordance"

    @property
    def missing(self) -> Tensor:
        return torch.full((2,), torch.nan)

    @abstractmethod
    def risk(self, columns: Tensor) -> Tensor:
        """The risk ``(...)`` that the columns ``(..., C)`` of predictions mean."""

    def risk_group(self, risk: float) -> str | None:
        """A risk in words, compared with the training images; None if theirs is unknown."""
        if self.threshold is None:
            return None
        return "high risk" if risk > self.threshold else "low risk"

    def targets(self, labels: Tensor) -> Tensor:
        """Times and events of B images, ``(B, 2)``; nan for an image without a label."""
        return labels.double()

    def answer(self, columns: Tensor) -> float:
        return float(self.risk(columns))

    def truth(self, target: Tensor) -> str:
        """The time, with a plus sign if the event happens later, if at all."""
        return f"{float(target[0]):.7g}" + "+" * (float(target[1]) == 0)

    def read_truth(self, text: str) -> list[float]:
        time = float(text.removesuffix("+") or "nan")
        return [time, time if time != time else float(not text.endswith("+"))]

    def errors(self, columns: Tensor, targets: Tensor) -> Tensor:
        """Share of the comparable images whose risk is in the wrong order with that of each."""
        from ips.survival import concordant_pairs

        pairs = concordant_pairs(self.risk(columns).numpy(), *targets.numpy().T)
        return torch.from_numpy(1 - pairs.concordant / pairs.comparable.clip(min=1))

    def metric(self) -> Metric:
        from ips.metrics import Collected
        from ips.survival import concordance

        return Collected(concordance)

    def _update(self, metric: Metric, logits: Tensor, labels: Tensor) -> None:
        metric.update(self.risk(self.class_activation(logits.double())), labels.double())

    def nothing_to_learn(self, labels: Tensor) -> str | None:
        if not (labels[:, 1] > 0).any():
            return "no event"
        return "only the same time" if bool((labels[:, 0] == labels[0, 0]).all()) else None

    def absent(self, labels: Tensor) -> list[str]:
        return [] if (labels[:, 1] > 0).any() else ["event"]


@dataclass(frozen=True, kw_only=True)
class Cox(Survival):
    """A proportional hazard: the logit is the logarithm of the risk relative to that of others.

    The loss is Cox's partial likelihood within a batch (Breslow's for equal times): at each event,
    the image should have the highest risk of those that are still at risk. A batch without events
    teaches nothing. Images are never compared across batches, so batches should be large.
    """

    has_probabilities: ClassVar[bool] = False

    @property
    def class_names(self) -> list[str]:
        return ["risk"]

    @property
    def outputs(self) -> int:
        return 1

    def teaches(self, labels: Tensor) -> bool:
        return bool((labels[self.known(labels), 1] > 0).any())

    def _loss(
        self, logits: Tensor, labels: Tensor, *, weights: Tensor | None, smoothing: float
    ) -> Tensor:
        return _partial_likelihood(logits.squeeze(-1), labels)

    def answer_statistics(self, labels: Tensor) -> Tensor:
        """Number of batches with events, and the sum of their losses with equal risks."""
        if not self.teaches(labels):
            return torch.zeros(2, dtype=torch.float64)
        known = labels[self.known(labels)].cpu().double()
        equal = _partial_likelihood(torch.zeros(len(known), dtype=torch.float64), known)
        return torch.stack([torch.ones_like(equal), equal])

    def constant_loss(
        self, statistics: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        return statistics[1] / statistics[0]

    def activation(self, logits: Tensor) -> Tensor:
        return logits

    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """Half the squared difference of the logarithms of the risks."""
        return (logits - usual).square().sum(dim=-1) / 2

    def risk(self, columns: Tensor) -> Tensor:
        return columns[..., 0]


def _partial_likelihood(risks: Tensor, labels: Tensor) -> Tensor:
    """Negative logarithm of Cox's partial likelihood of ``(B,)`` risks, the mean over events."""
    times, events = labels.unbind(dim=1)
    at_risk = times.unsqueeze(0) >= times.unsqueeze(1)  # (B, B): who is at each one's time
    others = risks.unsqueeze(0).expand_as(at_risk).masked_fill(~at_risk, -torch.inf)
    losses = others.logsumexp(dim=1) - risks
    return losses[events > 0].mean()


@dataclass(frozen=True, kw_only=True)
class Hazards(Survival):
    """Hazards of K time intervals: the probability of an event in each, if there was none before.

    The loss is the negative log-likelihood of what happened in each interval in which an image was
    under observation. A censored image counts for an interval if at least half of it was observed.
    The risk is the probability of an event until the end of an interval, the mean over intervals.

    Args:
        cuts: times at which the K intervals end; the first begins at 0.
    """

    cuts: tuple[float, ...]

    @property
    def class_names(self) -> list[str]:
        return [f"beyond {cut:.6g}" for cut in self.cuts]

    @property
    def outputs(self) -> int:
        return len(self.cuts)

    def _intervals(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Intervals ``(B, K)`` with an event, and those under observation, as bools."""
        times, events = labels[:, :1], labels[:, 1:] > 0  # (B, 1)
        ends = torch.tensor(self.cuts, dtype=labels.dtype, device=labels.device)
        starts = torch.cat([ends.new_zeros(1), ends[:-1]])
        begun = (times > starts) | (starts == 0)
        happened = events & begun & (times <= ends)
        return happened, torch.where(events, begun, times >= (starts + ends) / 2)

    def _loss(
        self, logits: Tensor, labels: Tensor, *, weights: Tensor | None, smoothing: float
    ) -> Tensor:
        happened, observed = self._intervals(labels)
        losses = F.binary_cross_entropy_with_logits(logits, happened.to(logits), reduction="none")
        return (losses * observed).sum(dim=1).mean()

    def answer_statistics(self, labels: Tensor) -> Tensor:
        """Number of labels, and numbers of images with an event and under observation, ``(K,)``."""
        happened, observed = self._intervals(labels[self.known(labels)].cpu())
        counts = torch.cat([happened.sum(dim=0), observed.sum(dim=0)])
        return torch.cat([torch.tensor([len(happened)]), counts]).double()

    def constant_loss(
        self, statistics: Tensor, *, weights: Tensor | None = None, smoothing: float = 0.0
    ) -> Tensor:
        """The loss of the share of events among the images under observation as hazards."""
        happened, observed = statistics[1:].view(2, -1)
        share = happened / observed.clamp(min=1)
        entropy = -torch.xlogy(share, share) - torch.xlogy(1 - share, 1 - share)
        total: Tensor = (observed * entropy).sum()
        return total / statistics[0]

    def activation(self, logits: Tensor) -> Tensor:
        """Logits to hazards."""
        return torch.sigmoid(logits)

    def divergence(self, logits: Tensor, usual: Tensor) -> Tensor:
        """The Kullback-Leibler divergence of the hazards, summed over intervals."""
        sides = [(F.logsigmoid(sign * logits), F.logsigmoid(sign * usual)) for sign in (1, -1)]
        return torch.stack([(p.exp() * (p - q)).sum(dim=-1) for p, q in sides]).sum(dim=0)

    def class_probabilities(self, probabilities: Tensor) -> Tensor:
        """Hazards to the probabilities of no event until the end of each interval."""
        return (1 - probabilities).cumprod(dim=-1)

    def risk(self, columns: Tensor) -> Tensor:
        return 1 - columns.mean(dim=-1)
