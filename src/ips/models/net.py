"""The base class of all methods: an encoder, one head per task, and the steps they share.

Letters: B images, K patches kept of an image, C channels or classes, D embedding size, T tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ips.errors import ConfigError
from ips.models.checks import PatchShape, check_batch, check_slices, check_source
from ips.models.outputs import Output, Prediction, Selected
from ips.models.scoring import ScoreTable
from ips.models.screen import Screened
from ips.nn import Aggregator, Head, PatchReadout, evaluating, sinusoidal_position
from ips.nn.encoders import Normalise, fastest_memory_format
from ips.patches import PatchSource
from ips.selection import Selection

Load = Literal["eager", "sequential", "lazy"]
LOADS: tuple[Load, ...] = get_args(Load)
Sources = Sequence[PatchSource]
Tables = Sequence[ScoreTable] | None


class Net(nn.Module, ABC):
    """A network that classifies images given as patches. One subclass per kind of method.

    Args:
        encoder: from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)``.
        heads: one per task.
        position: add the 1-D sinusoidal encoding of the patch index to the embeddings.
        readout: the patch-level head of Sect. 4.5.
        mean, std: per channel, of pixels scaled to 0..1.
        slice_size: number of patches to embed at a time in training, so that memory does not grow
            with M: each slice is embedded again in the backward pass. None embeds all at once.

    Attributes:
        channels: S, the number of score channels of a patch; 0 if patches are not scored.
        scores_all_patches: whether evaluation puts the score of every patch into its score table.
        needs_scoring: whether training scores all patches before it can choose among them.
        gradient_clip: largest norm of the gradient in training; None for no limit.
    """

    channels = 0
    scores_all_patches = True
    needs_scoring = False
    gradient_clip: float | None = None

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
        self._format = fastest_memory_format(encoder)
        self.encoder = encoder.to(memory_format=self._format)  # type: ignore[call-overload]
        self.normalise = Normalise(mean, std, memory_format=self._format)
        self.tasks = tuple(heads)
        self.heads = nn.ModuleList(heads.values())  # a list, because a task may have any name
        self.readout = readout
        self.position, self.slice_size = position, slice_size
        self.patch_shape: PatchShape | None = getattr(encoder, "patch_shape", None)

    def __repr__(self) -> str:
        """One line; ``print(net.encoder)`` shows the layers of the encoder."""
        parameters = sum(p.numel() for p in self.parameters())
        parts = [f"{type(self.encoder).__name__} encoder", f"{parameters:,} parameters"]
        parts += [f"{what} {text}" for what, text in self.describe().items() if text != "none"]
        return f"<{type(self).__name__} for {', '.join(self.tasks)}: {'; '.join(parts)}>"

    @property
    def device(self) -> torch.device:
        """The device of the network; patches are moved there."""
        return self.normalise.mean.device

    def own_patches(self, source: PatchSource) -> PatchSource:
        """Return the patches of an image that the method chooses from.

        They are those of ``source``, unless a method has its own. Indices, scores and coordinates
        refer to them.
        """
        return source

    # Training and evaluation

    def forward_train(
        self, sources: Sources, *, load: Load, seed: int, progress: float = 0.0
    ) -> Output:
        """Compute the output for a batch of images, with gradients.

        Args:
            sources: patches of the images; their number may differ.
            load: what is in memory at a time: ``eager`` the batch, ``sequential`` one image,
                ``lazy`` one micro-batch of patches.
            seed: random seed of this training step.
            progress: fraction of the training that is done.
        """
        self._check(sources, load)
        return self._forward_train(sources, load, seed, progress)

    def forward_eval(
        self, sources: Sources, *, load: Load = "lazy", seed: int = 0, tables: Tables = None
    ) -> tuple[Output, Selection]:
        """Compute the output in evaluation mode, and the patches that it is based on.

        ``tables``, one per image, receive the scores; those that a table has already are reused.
        """
        self._check(sources, load)
        with evaluating(self):
            return self._forward_eval(sources, load, seed, tables)

    @abstractmethod
    def _forward_train(self, sources: Sources, load: Load, seed: int, progress: float) -> Output:
        """See `forward_train`."""

    @abstractmethod
    def _forward_eval(
        self, sources: Sources, load: Load, seed: int, tables: Tables
    ) -> tuple[Output, Selection]:
        """See `forward_eval`."""

    def select_for_training(self, sources: Sources, *, load: Load, seed: int) -> Selected | None:
        """Run the select step of training alone, to time it; None for methods without one."""
        return None

    def preload(self, sources: Sources) -> list[PatchSource]:
        """Copy what the method needs of the images to the device, before a training step."""
        return list(sources)

    def describe(self) -> dict[str, str]:
        """Describe in words which patches are kept and how they are aggregated, for reports."""
        aggregator: Aggregator | None = getattr(self, "aggregator", None)
        text = "none" if aggregator is None else aggregator.description
        if aggregator is not None and self.position:
            text += ", with positions"
        return {"selected patches": self._describe_selection(), "aggregation": text}

    @abstractmethod
    def _describe_selection(self) -> str: ...

    def predict(
        self,
        source: PatchSource,
        *,
        load: Load = "lazy",
        seed: int = 0,
        table: ScoreTable | None = None,
    ) -> Prediction:
        """Predict one image."""
        tables = None if table is None else [table]
        return self.predict_batch([source], load=load, seed=seed, tables=tables)[0]

    def predict_batch(
        self, sources: Sources, *, load: Load = "lazy", seed: int = 0, tables: Tables = None
    ) -> list[Prediction]:
        """Predict several images at once."""
        sources = [self.own_patches(source) for source in sources]
        for source in sources:
            source.coords  # noqa: B018  fail now if a file does not contain them
        output, selection = self.forward_eval(sources, load=load, seed=seed, tables=tables)
        return [self._prediction(source, selection, output, b) for b, source in enumerate(sources)]

    def empty_table(self, source: PatchSource, channels: int | None = None) -> ScoreTable:
        """Return a table in memory for the scores of an image, by default S of each patch."""
        count = len(self.own_patches(source))
        width = self.channels if channels is None else channels
        return ScoreTable(torch.empty(count, width, device=self.device))

    def screened(self, table: ScoreTable) -> Screened | None:
        """Which patches of a filled table were scored; None if all were."""
        return None

    def _check(self, sources: Sources, load: str) -> None:
        if load not in LOADS:
            raise ConfigError(f"load={load!r}: expected one of {', '.join(LOADS)}")
        for source in sources:
            check_source(source, self.patch_shape)

    # From patches to embeddings

    def embed(self, patches: Tensor, mask: Tensor | None) -> Tensor:
        """Embed ``(B, K, ...)`` patches as ``(B, K, D)``; padding does not reach the encoder.

        ``mask`` ``(B, K)`` is False for padding. Without padding it can be None, so that shapes do
        not depend on its values.
        """
        present = patches.flatten(0, 1) if mask is None else patches[mask]  # (n, ...) as stored
        check_batch(self.encoder, len(present))
        if self.slice_size is None:
            x: Tensor = self._encode(present)  # (n, D)
        else:
            check_slices(self.encoder, self.slice_size)
            slices = present.split(self.slice_size)
            x = torch.cat([checkpoint(self._encode, part, use_reentrant=False) for part in slices])
        if mask is None:
            return x.view(*patches.shape[:2], -1)  # (B, K, D)
        rows = x.new_zeros(*mask.shape, x.shape[-1])  # (B, K, D)
        rows[mask] = x
        return rows

    def _encode(self, patches: Tensor) -> Tensor:
        x: Tensor = self.encoder(self.normalise(patches))
        return x

    def add_position(self, x: Tensor, indices: Tensor) -> Tensor:
        """Add the encoding of the patch indices to embeddings, if positions are used."""
        return x + sinusoidal_position(indices, x.shape[-1]).to(x.dtype) if self.position else x

    # From embeddings to predictions

    def _aggregate(self, aggregator: Aggregator, x: Tensor, placed: Tensor, mask: Tensor) -> Output:
        """Classify embeddings ``(B, K, D)``, given without and with their positions."""
        aggregated = aggregator(placed, mask)
        tokens = aggregated.tokens.unbind(dim=1)  # T x (B, D)
        rows = zip(self.tasks, self.heads, tokens, strict=True)
        return self._output({task: head(z) for task, head, z in rows}, x, aggregated.attention)

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


def _activation(head: nn.Module) -> Callable[[Tensor], Tensor]:
    assert isinstance(head, Head)
    return head.activation
