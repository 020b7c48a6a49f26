"""A CNN on the whole image, or on a smaller copy of it: no patches, no attention.

Letters: B images, N patches, K of them shown, C channels, D embedding size, T tasks, h and w of
the last map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.models.checks import check_batch, check_source
from ips.models.net import Load, Net, Settings, check_load
from ips.models.outputs import Output
from ips.models.picture import grid_shape, whole_image
from ips.models.table import ScoreTable
from ips.nn import Head, ResNet, evaluating
from ips.patches import PatchSource, pad
from ips.selection import Selection


class CNN(Net):
    """The encoder over the image as one, pooled, and a head per task.

    Where it looked is told by its last map: how much each place of it adds to the likeliest
    class of a task (the map times the gradient of that class's logit), summed over a patch.

    Args:
        encoder: with one channel more than the images have if ``position``.
        heads: one per task.
        keep: K, patches to show as those that mattered; None for all.
        scale: of the image; 1, or 0.3 for the small CNN of the paper.
        settings: see `Net`; ``position`` adds a channel to the image that says how far down it is.
    """

    def __init__(
        self,
        encoder: ResNet,
        heads: Mapping[str, Head],
        *,
        keep: int | None = None,
        scale: float = 1.0,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(encoder, heads, **settings)
        self.keep, self.scale = keep, scale
        self.channels = len(self.tasks)

    def learn(
        self, sources: Sequence[PatchSource], *, load: Load, seed: int, progress: float = 0.0
    ) -> Output:
        """Every pixel with gradients, whatever the image's size."""
        check_load(load)
        maps = self._maps(sources)
        return Output(self._classify(maps), None, None, None)

    def answer(
        self,
        sources: Sequence[PatchSource],
        *,
        load: Load = "lazy",
        seed: int = 0,
        tables: Sequence[ScoreTable] | None = None,
    ) -> tuple[Output, Selection]:
        """The answers, and the K patches that add most to them; tables get the logarithm of all."""
        check_load(load)
        with evaluating(self):
            maps = self._maps(sources)
            with torch.inference_mode(False), torch.enable_grad():
                maps = [m.clone().requires_grad_() for m in maps]
                logits = self._classify(maps)
                weights = [self._contributions(maps, logits[task]) for task in self.tasks]
            rows, attention = [], []
            for b, source in enumerate(sources):
                shape = grid_shape(source)
                cells = [F.adaptive_avg_pool2d(w[b][None], shape).flatten() for w in weights]
                a = torch.stack(cells) + 1e-12  # (T, N), all alike where nothing counts
                a = a / a.sum(dim=1, keepdim=True)
                if tables is not None:
                    tables[b].done = 0  # it looks at all at once, there is nothing to go on with
                    tables[b].add(a.T.log())  # the softmax of which is a
                kept = a.mean(dim=0).topk(min(self.keep or len(source), len(source))).indices
                rows.append(kept)
                attention.append((a[:, kept] / a[:, kept].sum(dim=1, keepdim=True)).T)  # (K, T)
            indices, mask = pad(rows)
            a = pad(attention)[0].transpose(1, 2)  # (B, T, K)
            selection = Selection(indices, mask, a.mean(dim=1))
            values = {task: value.detach() for task, value in logits.items()}
            return Output(values, a.unsqueeze(2), None, None), selection

    def _maps(self, sources: Sequence[PatchSource]) -> list[Tensor]:
        """The encoder's last map of every image, ``(1, D, h, w)``; equal images go together."""
        images = []
        for source in sources:
            check_source(self.encoder, source, extra=int(self.position))
            grid_shape(source)  # a sample of patches is no image
            images.append(whole_image(source, device=self.device))
            source.close()
        assert isinstance(self.encoder, ResNet)
        if len({image.shape for image in images}) == 1:
            return list(self.encoder.maps(self._small(torch.stack(images))).split(1))
        return [self.encoder.maps(self._small(image.unsqueeze(0))) for image in images]

    def _small(self, images: Tensor) -> Tensor:
        """``(B, C, H, W)`` uint8 to what the encoder takes, scaled, with its position channel."""
        x = self._prepare(images)
        if self.scale != 1:
            x = F.interpolate(
                x, scale_factor=self.scale, mode="bilinear", align_corners=False, antialias=True
            )
        if self.position:
            B, _, H, W = x.shape
            # half a wave over all pixels in their order: it rises from top to bottom
            phase = torch.arange(H * W, device=x.device, dtype=x.dtype) / (H * W) - 0.5
            x = torch.cat([x, (phase * math.pi).sin().view(1, 1, H, W).expand(B, 1, H, W)], dim=1)
        return x.contiguous(memory_format=self._format)

    def _classify(self, maps: Sequence[Tensor]) -> dict[str, Tensor]:
        assert isinstance(self.encoder, ResNet)
        pooled = torch.cat([self.encoder.pooled(m) for m in maps])  # (B, D)
        check_batch(self.encoder, len(pooled))
        z = self.encoder.norm(pooled)
        return {task: head(z) for task, head in zip(self.tasks, self.heads, strict=True)}

    @staticmethod
    def _contributions(maps: Sequence[Tensor], logits: Tensor) -> list[Tensor]:
        """For each image ``(h, w)``: what each place adds to the likeliest class, if it adds."""
        top = logits.amax(dim=1).sum()
        grads = torch.autograd.grad(top, list(maps), retain_graph=True)
        rows = zip(maps, grads, strict=True)
        return [(m * g).sum(dim=(0, 1)).clamp(min=0).detach() for m, g in rows]
