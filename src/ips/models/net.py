"""What every method shares: an encoder, a head per task, and the way from patches to embeddings.

Letters: B images, K patches kept of an image, C channels or classes, D embedding size, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ips.errors import ConfigError
from ips.models.checks import check_batch, check_slices, memory_format
from ips.models.outputs import Output
from ips.models.prediction import Prediction
from ips.models.table import ScoreTable
from ips.nn import Aggregator, Head, PatchReadout, sinusoidal_position
from ips.patches import MemoryPatches, PatchSource, in_memory
from ips.selection import Selection

Load = Literal["eager", "sequential", "lazy"]
LOADS: tuple[Load, ...] = get_args(Load)


class Settings(TypedDict, total=False):
    """What every method takes by name, see `Net`."""

    position: bool
    readout: PatchReadout | None
    mean: Sequence[float]
    std: Sequence[float]
    slice_size: int | None


class Net(nn.Module, ABC):
    """A method: it learns from images given as patches, and answers for them.

    Args:
        encoder: from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)``.
        heads: one per task.
        position: add the 1-D sinusoidal encoding of the patch number to the embeddings.
        readout: the patch-level head of Sect. 4.5.
        mean, std: per channel, of pixels scaled to 0..1.
        slice_size: train on this many patches at a time, so that memory does not depend on M: each
            slice is embedded again in the backward pass. None embeds all at once.
    """

    mean: Tensor
    std: Tensor
    channels: int = 0
    """S, the score channels of a patch; 0 where patches are not scored."""

    def __init__(
        self,
        encoder: nn.Module,
        heads: Mapping[str, Head],
        *,
        position: bool = False,
        readout: PatchReadout | None = None,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        slice_size: int | None = None,
    ) -> None:
        super().__init__()
        self._format = memory_format(encoder)
        self.encoder = encoder.to(memory_format=self._format)  # type: ignore[call-overload]
        self.tasks = tuple(heads)
        self.heads = nn.ModuleList(heads.values())  # a task may be called anything
        self.readout = readout
        self.position, self.slice_size = position, slice_size
        self.register_buffer("mean", _per_channel(mean), persistent=False)
        self.register_buffer("std", _per_channel(std), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where the model is, and patches go."""
        return self.mean.device

    # What a method does

    @abstractmethod
    def learn(
        self, sources: Sequence[PatchSource], *, load: Load, seed: int, progress: float = 0.0
    ) -> Output:
        """The answers for a batch of images, with gradients.

        Args:
            sources: the images, of any mix of N.
            load: what of them is in memory at a time.
            seed: of all that is random in this step.
            progress: share of the training that is done.
        """

    @abstractmethod
    def answer(
        self,
        sources: Sequence[PatchSource],
        *,
        load: Load = "lazy",
        seed: int = 0,
        tables: Sequence[ScoreTable] | None = None,
    ) -> tuple[Output, Selection]:
        """The answers in evaluation mode, and the patches that they rest on.

        ``tables``, one per image, hold the logits of patches, perhaps begun already; they are told
        how far the look has come.
        """

    def predict(
        self,
        source: PatchSource,
        *,
        load: Load = "lazy",
        seed: int = 0,
        table: ScoreTable | None = None,
    ) -> Prediction:
        """The answer for one image, and where it was found."""
        tables = None if table is None else [table]
        return self.predict_batch([source], load=load, seed=seed, tables=tables)[0]

    def predict_batch(
        self,
        sources: Sequence[PatchSource],
        *,
        load: Load = "lazy",
        seed: int = 0,
        tables: Sequence[ScoreTable] | None = None,
    ) -> list[Prediction]:
        """The same for several images at once."""
        for source in sources:
            source.coords  # noqa: B018  a file that cannot say where its patches are says so now
        output, selection = self.answer(sources, load=load, seed=seed, tables=tables)
        rows = enumerate(sources)
        return [self._prediction(source, selection, output, b) for b, source in rows]

    # From patches to embeddings

    def embed(self, patches: Tensor, mask: Tensor) -> Tensor:
        """``(B, K, ...)`` patches to ``(B, K, D)``; the encoder sees only those that are there."""
        present = patches[mask]  # (n, ...) as stored
        check_batch(self.encoder, len(present))
        if self.slice_size is None:
            x: Tensor = self._encode(present)  # (n, D)
        else:  # keep only embeddings; each slice is embedded again in the backward pass
            check_slices(self.encoder, self.slice_size)
            slices = present.split(self.slice_size)
            x = torch.cat([checkpoint(self._encode, part, use_reentrant=False) for part in slices])
        rows = x.new_zeros(*mask.shape, x.shape[-1])  # (B, K, D)
        rows[mask] = x
        return rows

    def _encode(self, patches: Tensor) -> Tensor:
        x: Tensor = self.encoder(self._prepare(patches))
        return x

    def _prepare(self, patches: Tensor) -> Tensor:
        """Stored patches to what the encoder takes: pixels to 0..1, standardized; else floats."""
        if patches.dim() == 4:
            patches = patches.contiguous(memory_format=self._format)
        if patches.dtype == torch.uint8:
            return (patches.to(self.mean.dtype) / 255 - self.mean) / self.std
        return patches.to(self.mean.dtype)

    def _placed(self, x: Tensor, indices: Tensor) -> Tensor:
        """Embeddings with the encoding of their patch numbers added, if positions count."""
        return x + sinusoidal_position(indices, x.shape[-1]).to(x.dtype) if self.position else x

    def resident(self, source: PatchSource) -> MemoryPatches:
        """All of an image's patches, on the device."""
        memory = in_memory(source)
        patches = memory.patches
        if self.device.type == "cuda" and not patches.is_cuda:
            patches = patches.pin_memory()
        patches = patches.to(self.device, non_blocking=True)
        return MemoryPatches(patches, coords=memory.coords, extent=source.extent, name=source.name)

    # From embeddings to answers

    def _aggregated(
        self, aggregator: Aggregator, x: Tensor, placed: Tensor, mask: Tensor
    ) -> Output:
        """Embeddings ``(B, K, D)``, and the same with positions, to an answer per task."""
        aggregated = aggregator(placed, mask)
        tokens = aggregated.tokens.unbind(dim=1)  # T x (B, D)
        answers = zip(self.tasks, self.heads, tokens, strict=True)
        logits = {task: head(z) for task, head, z in answers}  # (B, C) each
        return self._output(logits, x, aggregated.attention)

    def _output(self, logits: dict[str, Tensor], x: Tensor, attention: Tensor) -> Output:
        patch_logits, readout_logits = None, None
        if self.readout is not None:
            patch_logits, readout_logits = self.readout(x, attention)
        return Output(logits, attention, patch_logits, readout_logits)

    def _prediction(
        self, source: PatchSource, selection: Selection, output: Output, b: int
    ) -> Prediction:
        assert output.attention is not None
        mask = selection.mask[b]
        attention = output.attention[b].mean(dim=1)[:, mask]  # (T, K)
        total, order = attention.mean(dim=0).sort(descending=True, stable=True)
        indices = selection.indices[b][mask][order].cpu()
        logits = {task: values[b] for task, values in output.logits.items()}
        patch_probabilities = None
        if self.readout is not None and output.patch_logits is not None:
            patch_probabilities = self.readout.head.activation(output.patch_logits[b][mask][order])
        return Prediction(
            name=source.name,
            logits=logits,
            probabilities={
                task: _activation(head)(logits[task])
                for task, head in zip(self.tasks, self.heads, strict=True)
            },
            indices=indices,
            coords=source.coords[indices.numpy()],
            extent=source.extent,
            attention=total,
            task_attention=dict(zip(self.tasks, attention[:, order], strict=True)),
            patch_probabilities=patch_probabilities,
            patches=len(source),
        )


def check_load(load: str) -> None:
    """Whether there is such a way to load."""
    if load not in LOADS:
        raise ConfigError(f"load={load!r}: expected one of {', '.join(LOADS)}")


def _activation(head: nn.Module) -> Callable[[Tensor], Tensor]:
    assert isinstance(head, Head)
    return head.activation


def _per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)  # (C, 1, 1)
