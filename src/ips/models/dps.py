"""Differentiable patch selection (DPS, Cordonnier et al. 2021) with the transformer of IPS.

The scorer decides which patches there are: an image is divided into as many equal cells as there
are scores, and the patch of a score is centred on its cell.

Letters: B images, N patches, K kept, C channels, D embedding size, H and W height and width of an
image or of its scaled copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ips.errors import PatchError
from ips.models.checks import check_source
from ips.models.net import Load, Net, Sources, Tables
from ips.models.outputs import Output
from ips.models.whole_image import (
    CentredPatches,
    LoadedImage,
    cut,
    image_size,
    scaled_copy,
    scaled_size,
)
from ips.nn import Aggregator, Head, PatchReadout, ResNet, sinusoidal_position
from ips.patches import PatchSource, pad
from ips.selection import Selection, perturbed_top_k

_MIN_SIDE = 25  # px: a smaller image has no score


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

    def forward(self, x: Tensor) -> Tensor:
        """``(B, C, H, W)`` to scores ``(B, N)``, row by row.

        Scores range from 0 to 1, because the noise added to them has a fixed size.
        """
        scores: Tensor = self.pool(self.conv(self.stem.maps(x))).flatten(1)  # (B, N)
        low, high = scores.amin(dim=1, keepdim=True), scores.amax(dim=1, keepdim=True)
        return (scores - low) / (high - low + 1e-5)

    @staticmethod
    def shape(height: int, width: int) -> tuple[int, int]:
        """Return rows and columns of the scores of an image.

        >>> ScoreMap.shape(400, 533), ScoreMap.shape(500, 500)  # as in Appendix D.5
        ((24, 32), (30, 30))
        """

        def count(side: int) -> int:
            for _ in range(3):  # three layers of the stem have stride 2
                side = -(-side // 2)
            return (side - 2) // 2

        return count(height), count(width)


class DPSNet(Net):
    """Score patches from a scaled image, and learn the scores through a perturbed top K.

    The patches are `CentredPatches`, one per score, whatever the grid of the source is. Outside the
    image they are 0 after normalisation.

    In training a selected patch is a weighted mean of patches; the weights say how often each one
    is in the top K under noise. In evaluation, and without noise, the K patches with the highest
    scores are selected.

    Args:
        encoder, heads: see `Net`.
        aggregator: combines the patches.
        scorer: scores the patches of the scaled image.
        keep: K.
        scale: scale of that image, which decides how many patches there are; a third in the paper.
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

    def own_patches(self, source: PatchSource) -> CentredPatches:
        if isinstance(source, CentredPatches):
            return source
        check_source(source, self.patch_shape)
        scaled = scaled_size(*image_size(source), self.scale)
        if min(scaled) < _MIN_SIDE:
            raise PatchError(
                f"{source.name}: scaled to {scaled[1]} x {scaled[0]} px it is too small, at least "
                f"{_MIN_SIDE} px are needed: raise dps.scale={self.scale:.3g}"
            )
        return CentredPatches(source, self.scorer.shape(*scaled))

    def preload(self, sources: Sources) -> list[PatchSource]:
        """Assemble the images on the device."""
        return [LoadedImage(source, device=self.device) for source in sources]

    def _forward_train(self, sources: Sources, load: Load, seed: int, progress: float) -> Output:
        """Score, mix patches, embed and aggregate, all with gradients."""
        sigma = self.sigma * (1 - progress) if self.decay else self.sigma
        views, images = self._read(sources)
        patches, positions = [], []
        for b, (view, scores) in enumerate(zip(views, self.scores(images), strict=True)):
            Y = self._indicators(scores, sigma=sigma, seed=seed * 1_000_003 + b)  # (K, N)
            used = Y.detach().amax(dim=0).nonzero().squeeze(1)  # patches with a weight
            pixels = self._cut(view, images[b], used)  # (u, C, h, w)
            mixed = Y[:, used] @ pixels.flatten(1)  # (K, C·h·w)
            patches.append(mixed.unflatten(1, pixels.shape[1:]))
            if self.position:
                positions.append(Y[:, used] @ sinusoidal_position(used, self.encoder.dim))  # (K, D)
        mixed, mask = pad(patches)  # (B, K, C, h, w)
        x = self.embed(mixed, mask)  # (B, K, D)
        placed = x + pad(positions)[0] if self.position else x
        return self._aggregate(self.aggregator, x, placed, mask)

    def _forward_eval(
        self, sources: Sources, load: Load, seed: int, tables: Tables
    ) -> tuple[Output, Selection]:
        """Only the K patches with the highest scores are embedded."""
        views, images = self._read(sources)
        rows, patches, best = [], [], []
        for b, (view, scores) in enumerate(zip(views, self.scores(images), strict=True)):
            if tables is not None:
                tables[b].put(torch.arange(len(view)), scores.unsqueeze(1))
            kept = scores.topk(min(self.keep, len(scores))).indices.sort().values  # (K,)
            rows.append(kept)
            best.append(scores[kept])
            patches.append(self._cut(view, images[b], kept))
        pixels, mask = pad(patches)
        selection = Selection(pad(rows)[0], mask, pad(best)[0])
        x = self.embed(pixels, mask)
        placed = self.add_position(x, selection.indices)
        return self._aggregate(self.aggregator, x, placed, mask), selection

    def _read(self, sources: Sources) -> tuple[list[CentredPatches], list[Tensor]]:
        """The patches of the scorer, and the images ``(C, H, W)`` uint8 that they are cut from."""
        views, images = [self.own_patches(source) for source in sources], []
        for view in views:
            images.append(view.image(self.device))
            view.close()
        return views, images

    def _cut(self, view: CentredPatches, image: Tensor, indices: Tensor) -> Tensor:
        """Cut patches from an image that is normalised first, so that the padding is 0."""
        normalised: Tensor = self.normalise(image.unsqueeze(0))[0]
        return cut(normalised, view.corners[indices.cpu().numpy()], view.shape[1:])

    def scores(self, images: Sequence[Tensor]) -> list[Tensor]:
        """Score the patches of each image ``(N,)``; images of one size are scored in a batch."""
        scaled = [scaled_copy(self.normalise(image.unsqueeze(0)), self.scale) for image in images]
        if len({image.shape for image in scaled}) == 1:
            return list(self.scorer(torch.cat(scaled)))
        return [self.scorer(image)[0] for image in scaled]

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
