"""Differentiable patch selection (DPS, Cordonnier et al. 2021) with the transformer of IPS.

Letters: B images, N patches, K kept, C channels, D embedding size, H and W height and width of the
scaled image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import PatchError
from ips.models.net import Load, Net, Sources, Tables
from ips.models.outputs import Output
from ips.models.whole_image import grid_shape, whole_image
from ips.nn import Aggregator, Head, PatchReadout, ResNet, sinusoidal_position
from ips.patches import PatchSource, pad
from ips.selection import Selection, perturbed_top_k

_MIN_SIDE = 32  # px: the feature map of a smaller image is smaller than the convolution over it


class ScoreMap(nn.Module):
    """Score all patches from a scaled image (Appendix D.5): two stages, a 3x3 convolution, a max.

    Args:
        stem: the first stages of a ResNet.
    """

    def __init__(self, stem: ResNet) -> None:
        super().__init__()
        self.stem = stem
        self.conv = nn.Conv2d(stem.dim, 1, 3)
        self.pool = nn.MaxPool2d(2, stride=2)

    def forward(self, x: Tensor, shape: tuple[int, int]) -> Tensor:
        """``(B, C, H, W)`` to scores ``(B, N)``, for ``shape`` rows and columns of patches.

        Scores range from 0 to 1, because the noise added to them has a fixed size.
        """
        scores = self.pool(self.conv(self.stem.maps(x)))  # (B, 1, about rows, about columns)
        if scores.shape[-2:] != shape:
            scores = F.interpolate(scores, shape, mode="bilinear", align_corners=False)
        flat: Tensor = scores.flatten(1)  # (B, N)
        low, high = flat.amin(dim=1, keepdim=True), flat.amax(dim=1, keepdim=True)
        return (flat - low) / (high - low + 1e-5)


class DPSNet(Net):
    """Score patches from a scaled image, and learn the scores through a perturbed top K.

    In training a selected patch is a weighted mean of patches; the weights say how often each one
    is in the top K under noise. In evaluation, and without noise, the K patches with the highest
    scores are selected.

    Args:
        encoder, heads: see `Net`.
        aggregator: combines the patches.
        scorer: scores the patches of the scaled image.
        keep: K.
        scale: scale of that image; a third in the paper.
        samples: number of noise samples.
        sigma: standard deviation of the noise at the start of training.
        decay: decrease sigma linearly to 0.
        gradient_clip: largest norm of the gradient in training.
        position, readout, mean, std, slice_size: see `Net`.
    """

    channels = 1

    def __init__(
        self,
        encoder: nn.Module,
        aggregator: Aggregator,
        heads: Mapping[str, Head],
        scorer: ScoreMap,
        *,
        keep: int,
        scale: float = 1 / 3,
        samples: int = 500,
        sigma: float = 0.05,
        decay: bool = True,
        gradient_clip: float | None = 0.1,
        position: bool = False,
        readout: PatchReadout | None = None,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        slice_size: int | None = None,
    ) -> None:
        super().__init__(
            encoder,
            heads,
            position=position,
            readout=readout,
            mean=mean,
            std=std,
            slice_size=slice_size,
        )
        self.aggregator = aggregator
        self.scorer = scorer
        self.keep, self.scale, self.gradient_clip = keep, scale, gradient_clip
        self.samples, self.sigma, self.decay = samples, sigma, decay

    def _forward_train(self, sources: Sources, load: Load, seed: int, progress: float) -> Output:
        """Score, mix patches, embed and aggregate, all with gradients."""
        sigma = self.sigma * (1 - progress) if self.decay else self.sigma
        patches, positions = [], []
        for b, (source, scores) in enumerate(zip(sources, self.scores(sources), strict=True)):
            Y = self._indicators(scores, sigma=sigma, seed=seed * 1_000_003 + b)  # (K, N)
            used = Y.detach().amax(dim=0).nonzero().squeeze(1)  # patches with a weight
            pixels = self.normalise(source.read(used.cpu()).to(self.device))  # (u, C, h, w)
            mixed = Y[:, used] @ pixels.flatten(1)  # (K, C·h·w)
            patches.append(mixed.unflatten(1, pixels.shape[1:]))
            if self.position:
                positions.append(Y[:, used] @ sinusoidal_position(used, self.encoder.dim))  # (K, D)
            source.close()
        mixed, mask = pad(patches)  # (B, K, C, h, w)
        x = self.embed(mixed, mask)  # (B, K, D)
        placed = x + pad(positions)[0] if self.position else x
        return self._aggregate(self.aggregator, x, placed, mask)

    def _forward_eval(
        self, sources: Sources, load: Load, seed: int, tables: Tables
    ) -> tuple[Output, Selection]:
        """Only the K patches with the highest scores are read at full resolution."""
        rows, patches, best = [], [], []
        for b, (source, scores) in enumerate(zip(sources, self.scores(sources), strict=True)):
            if tables is not None:
                tables[b].put(torch.arange(len(source)), scores.unsqueeze(1))
            kept = scores.topk(min(self.keep, len(scores))).indices.sort().values  # (K,)
            rows.append(kept)
            best.append(scores[kept])
            patches.append(source.read(kept.cpu()).to(self.device))
            source.close()
        pixels, mask = pad(patches)
        selection = Selection(pad(rows)[0], mask, pad(best)[0])
        x = self.embed(pixels, mask)
        placed = self._add_position(x, selection.indices)
        return self._aggregate(self.aggregator, x, placed, mask), selection

    def scores(self, sources: Sources) -> list[Tensor]:
        """Score the patches of each image ``(N,)``; images of one size are scored in a batch."""
        scaled = [self._scaled(source) for source in sources]  # B x (1, C, H, W)
        shapes = [grid_shape(source) for source in sources]
        rows = list(zip(scaled, shapes, strict=True))
        if len({(image.shape, shape) for image, shape in rows}) == 1:
            return list(self.scorer(torch.cat(scaled), shapes[0]))
        return [self.scorer(image, shape)[0] for image, shape in rows]

    def _scaled(self, source: PatchSource) -> Tensor:
        image = self.normalise(whole_image(source, device=self.device).unsqueeze(0))
        scaled = F.interpolate(
            image, scale_factor=self.scale, mode="bilinear", align_corners=False, antialias=True
        )
        if min(scaled.shape[-2:]) < _MIN_SIDE:
            raise PatchError(
                f"{source.name}: scaled to {scaled.shape[-1]} x {scaled.shape[-2]} px it is too "
                f"small, at least {_MIN_SIDE} px are needed: raise dps.scale={self.scale:.3g}"
            )
        return scaled

    def _indicators(self, scores: Tensor, *, sigma: float, seed: int) -> Tensor:
        """Scores ``(N,)`` to ``(K, N)``: the weight of each patch for each place in the top K."""
        K, N = min(self.keep, len(scores)), len(scores)
        if sigma > 0:
            return perturbed_top_k(
                scores.unsqueeze(0), keep=K, sigma=sigma, samples=self.samples, seed=seed
            )[0]
        return F.one_hot(scores.topk(K).indices.sort().values, N).to(scores.dtype)

    def _describe_selection(self) -> str:
        return f"M = {self.keep}"
