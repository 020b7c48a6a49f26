"""A CNN over the whole image, or over a smaller copy of it: no patches, no attention.

Letters: B images, N patches, K of them kept, C channels, D embedding size, T tasks, h and w
height and width of the last feature map.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ips.models.checks import check_batch
from ips.models.net import Load, Net, Sources, Tables
from ips.models.outputs import Output
from ips.models.whole_image import LoadedImage, grid_shape, scaled_copy, whole_image
from ips.nn import EfficientNetLite, Head, ResNet
from ips.patches import PatchSource, pad
from ips.selection import Selection


class CNN(Net):
    """The encoder over the whole image, pooled, and one head per task.

    The score of a patch is its contribution to the most likely class of a task: feature map times
    gradient of the logit, summed over the patch.

    Args:
        encoder: a network with feature maps, with one channel more than the images if ``position``.
        heads: one per task.
        keep: K, number of patches to report as the most important ones; None for all.
        scale: scale of the image; 1, or a third for the paper's "CNN 0.3x".
        position: add a channel to the image that encodes the position.
        mean, std: see `Net`.
    """

    def __init__(
        self,
        encoder: ResNet | EfficientNetLite,
        heads: Mapping[str, Head],
        *,
        keep: int | None = None,
        scale: float = 1.0,
        position: bool = False,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__(encoder, heads, position=position, mean=mean, std=std)
        self.keep, self.scale = keep, scale
        self.channels = len(self.tasks)
        self.patch_shape = (encoder.channels - int(position), None, None)

    def preload(self, sources: Sources) -> list[PatchSource]:
        """Assemble the images on the device."""
        return [LoadedImage(source, device=self.device) for source in sources]

    def _forward_train(self, sources: Sources, load: Load, seed: int, progress: float) -> Output:
        """All pixels have gradients, whatever the size of the image."""
        return Output(self._classify(self._maps(sources)), None, None, None)

    def _forward_eval(
        self, sources: Sources, load: Load, seed: int, tables: Tables
    ) -> tuple[Output, Selection]:
        """Tables receive the logarithm of the contributions, whose softmax they are."""
        maps = self._maps(sources)
        with torch.inference_mode(False), torch.enable_grad():
            maps = [m.clone().requires_grad_() for m in maps]
            logits = self._classify(maps)
            contributions = [self._contributions(maps, logits[task]) for task in self.tasks]
        rows, attention = [], []
        for b, source in enumerate(sources):
            shape = grid_shape(source)
            cells = [F.adaptive_avg_pool2d(c[b][None], shape).flatten() for c in contributions]
            a = torch.stack(cells) + 1e-12  # (T, N), uniform if nothing contributes
            a = a / a.sum(dim=1, keepdim=True)
            if tables is not None:
                tables[b].put(torch.arange(len(source)), a.T.log())
            kept = a.mean(dim=0).topk(min(self.keep or len(source), len(source))).indices
            rows.append(kept)
            attention.append((a[:, kept] / a[:, kept].sum(dim=1, keepdim=True)).T)  # (K, T)
        indices, mask = pad(rows)
        a = pad(attention)[0].transpose(1, 2)  # (B, T, K)
        values = {task: value.detach() for task, value in logits.items()}
        output = Output(values, a.unsqueeze(2), None, None)
        return output, Selection(indices, mask, a.mean(dim=1))

    def _maps(self, sources: Sources) -> list[Tensor]:
        """The last feature map of every image, ``(1, D, h, w)``; images of one size in a batch."""
        images = []
        for source in sources:
            grid_shape(source)  # refuses a sample of patches, which is not an image
            images.append(whole_image(source, device=self.device))
            source.close()
        assert isinstance(self.encoder, ResNet | EfficientNetLite)
        if len({image.shape for image in images}) == 1:
            return list(self.encoder.maps(self._prepare(torch.stack(images))).split(1))
        return [self.encoder.maps(self._prepare(image.unsqueeze(0))) for image in images]

    def _prepare(self, images: Tensor) -> Tensor:
        """Normalise and scale ``(B, C, H, W)`` uint8 images, and add the position channel."""
        x: Tensor = self.normalise(images)
        if self.scale != 1:
            x = scaled_copy(x, self.scale)
        if self.position:
            B, _, H, W = x.shape
            # half a wave over all pixels in reading order: it rises from top to bottom
            phase = torch.arange(H * W, device=x.device, dtype=x.dtype) / (H * W) - 0.5
            x = torch.cat([x, (phase * math.pi).sin().view(1, 1, H, W).expand(B, 1, H, W)], dim=1)
        return x.contiguous(memory_format=self._format)

    def _classify(self, maps: Sequence[Tensor]) -> dict[str, Tensor]:
        assert isinstance(self.encoder, ResNet | EfficientNetLite)
        pooled = torch.cat([self.encoder.pooled(m) for m in maps])  # (B, D)
        check_batch(self.encoder, len(pooled))
        z = self.encoder.norm(pooled)
        return {task: head(z) for task, head in zip(self.tasks, self.heads, strict=True)}

    @staticmethod
    def _contributions(maps: Sequence[Tensor], logits: Tensor) -> list[Tensor]:
        """For each image ``(h, w)``: positive contributions to the logit of the top class."""
        top = logits.amax(dim=1).sum()
        grads = torch.autograd.grad(top, list(maps), retain_graph=True)
        rows = zip(maps, grads, strict=True)
        return [(m * g).sum(dim=(0, 1)).clamp(min=0).detach() for m, g in rows]

    def _describe_selection(self) -> str:
        return f"none: a network over the whole image at scale {self.scale:g}"
