"""Differentiable patch selection (DPS, Cordonnier et al. 2021) with the transformer of IPS.

Letters: B images, N patches, K kept, C channels, D embedding size, H and W of a small image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import PatchError
from ips.models.checks import check_source
from ips.models.net import Load, Net, Settings, check_load
from ips.models.outputs import Output
from ips.models.picture import grid_shape, whole_image
from ips.models.table import ScoreTable
from ips.nn import Aggregator, Head, ResNet, evaluating, sinusoidal_position
from ips.patches import PatchSource, pad
from ips.selection import Selection, perturbed_top_k

_SMALLEST = 32  # px: the map of a smaller image is smaller than the convolution over it


class ScoreMap(nn.Module):
    """A small image to a score for each patch (Appendix D.5): two stages, a 3x3 convolution, a max.

    Args:
        stem: the first stages of a ResNet.
    """

    def __init__(self, stem: ResNet) -> None:
        super().__init__()
        self.stem = stem
        self.conv = nn.Conv2d(stem.dim, 1, 3)
        self.pool = nn.MaxPool2d(2, stride=2)

    def forward(self, x: Tensor, shape: tuple[int, int]) -> Tensor:
        """``(B, C, H, W)`` to ``(B, N)`` from 0 to 1, for ``shape`` rows and columns of patches.

        The noise on the scores has a fixed size, so the scores need a fixed range.
        """
        scores = self.pool(self.conv(self.stem.maps(x)))  # (B, 1, rows, columns) or nearly
        if scores.shape[-2:] != shape:
            scores = F.interpolate(scores, shape, mode="bilinear", align_corners=False)
        flat: Tensor = scores.flatten(1)  # (B, N)
        low, high = flat.amin(dim=1, keepdim=True), flat.amax(dim=1, keepdim=True)
        return (flat - low) / (high - low + 1e-5)


class DPSNet(Net):
    """Scores come from a small copy of the image, and learn through a perturbed top K.

    In training a patch is a mean of patches, weighted by how often each is in the noisy top K; in
    evaluation, and when there is no noise left, it is the K patches with the highest scores.

    Args:
        encoder, heads: see `Net`.
        aggregator: combines the patches.
        scorer: sees the small image.
        keep: K.
        scale: of the small image; a third in the paper.
        samples: of the noise.
        sigma: of the noise when training begins.
        decay: whether sigma goes down to 0 in a line.
        settings: see `Net`.
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
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(encoder, heads, **settings)
        assert isinstance(aggregator, nn.Module)
        self.aggregator: Aggregator = aggregator
        self.scorer = scorer
        self.keep, self.scale = keep, scale
        self.samples, self.sigma, self.decay = samples, sigma, decay

    def learn(
        self, sources: Sequence[PatchSource], *, load: Load, seed: int, progress: float = 0.0
    ) -> Output:
        """Score, mix patches, embed and aggregate, all with gradients."""
        check_load(load)
        sigma = self.sigma * (1 - progress) if self.decay else self.sigma
        patches, places = [], []
        for b, (source, scores) in enumerate(zip(sources, self.scores(sources), strict=True)):
            Y = self._indicators(scores, sigma=sigma, seed=seed * 1_000_003 + b)  # (K, N)
            used = Y.detach().amax(dim=0).nonzero().squeeze(1)  # no other patch has any weight
            pixels = self._prepare(source.read(used.cpu()).to(self.device))  # (u, C, h, w)
            mixed = Y[:, used] @ pixels.flatten(1)  # (K, C·h·w)
            patches.append(mixed.unflatten(1, pixels.shape[1:]))
            if self.position:
                places.append(Y[:, used] @ sinusoidal_position(used, self.encoder.dim))  # (K, D)
            source.close()
        mixed, mask = pad(patches)  # (B, K, C, h, w)
        x = self.embed(mixed, mask)  # (B, K, D)
        placed = x + pad(places)[0] if self.position else x
        return self._aggregated(self.aggregator, x, placed, mask)

    def answer(
        self,
        sources: Sequence[PatchSource],
        *,
        load: Load = "lazy",
        seed: int = 0,
        tables: Sequence[ScoreTable] | None = None,
    ) -> tuple[Output, Selection]:
        """The K patches with the highest scores; only these are read at full resolution."""
        check_load(load)
        with evaluating(self):
            rows, patches, best = [], [], []
            for b, (source, scores) in enumerate(zip(sources, self.scores(sources), strict=True)):
                if tables is not None:
                    tables[b].done = 0  # all were scored at once, there is nothing to go on with
                    tables[b].add(scores.unsqueeze(1))
                kept = scores.topk(min(self.keep, len(scores))).indices.sort().values  # (K,)
                rows.append(kept)
                best.append(scores[kept])
                patches.append(source.read(kept.cpu()).to(self.device))
                source.close()
            pixels, mask = pad(patches)
            selection = Selection(pad(rows)[0], mask, pad(best)[0])
            x = self.embed(pixels, mask)
            placed = self._placed(x, selection.indices)
            return self._aggregated(self.aggregator, x, placed, mask), selection

    def scores(self, sources: Sequence[PatchSource]) -> list[Tensor]:
        """``(N,)`` of each image's patches, from small copies; images of a size go together."""
        small, shapes = [], []
        for source in sources:
            check_source(self.encoder, source)
            small.append(self._small(source))  # (1, C, H, W)
            shapes.append(grid_shape(source))
        if len({(image.shape, shape) for image, shape in zip(small, shapes, strict=True)}) == 1:
            return list(self.scorer(torch.cat(small), shapes[0]))
        rows = zip(small, shapes, strict=True)
        return [self.scorer(image, shape)[0] for image, shape in rows]

    def _small(self, source: PatchSource) -> Tensor:
        image = self._prepare(whole_image(source, device=self.device).unsqueeze(0))
        small = F.interpolate(
            image, scale_factor=self.scale, mode="bilinear", align_corners=False, antialias=True
        )
        if min(small.shape[-2:]) < _SMALLEST:
            raise PatchError(
                f"{source.name}: scaled down to {small.shape[-1]} x {small.shape[-2]} px it is too "
                f"small to score, {_SMALLEST} are needed: raise dps.scale={self.scale:.3g}"
            )
        return small

    def _indicators(self, scores: Tensor, *, sigma: float, seed: int) -> Tensor:
        """``(N,)`` scores to ``(K, N)``, how much each patch is of each place in the top K."""
        K, N = min(self.keep, len(scores)), len(scores)
        if sigma > 0:
            return perturbed_top_k(
                scores.unsqueeze(0), keep=K, sigma=sigma, samples=self.samples, seed=seed
            )[0]
        return F.one_hot(scores.topk(K).indices.sort().values, N).to(scores.dtype)
