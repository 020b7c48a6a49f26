"""Iterative Patch Selection: look at every patch without gradients, learn from M of them.

Letters: B images, N patches of an image, M kept (``keep``), I per step (``chunk``), K <= M kept
of an image with few patches, C channels, D embedding size, T tokens, H heads, S channels of score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ips import selection
from ips.errors import ConfigError
from ips.models.blocks import blocks_of
from ips.models.checks import check_batch, check_scores, check_slices, check_source, memory_format
from ips.models.embedding import EmbeddingPass, SelectionEncoder, joined
from ips.models.outputs import Output, Selected, join
from ips.models.prediction import Prediction
from ips.models.shortlist import Shortlist
from ips.models.table import ScoreTable, empty_table
from ips.nn import Aggregator, Head, PatchReadout, evaluating, sinusoidal_position
from ips.patches import MemoryPatches, PatchSource, in_memory, pad, release
from ips.selection import Mode, Selection

Load = Literal["eager", "sequential", "lazy"]
LOADS: tuple[Load, ...] = get_args(Load)


class IPSNet(nn.Module):
    """Patch selection and patch aggregation that share one attention (Sect. 2).

    Args:
        encoder: from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)``.
        aggregator: combines embeddings, and scores them for selection.
        heads: one per task, in the order of the aggregator's tokens.
        keep: M.
        chunk: I.
        mode: ``iterative`` (the paper), ``exact`` or ``random`` (the RPS baseline).
        position: add the 1-D sinusoidal encoding of the patch number to the embeddings, in
            selection and in aggregation.
        skip_blank: pass over patches of one colour, as if the image did not have them. Where most
            of an image is empty, empty patches can otherwise take most of the M places.
        readout: the patch-level head of Sect. 4.5.
        mean, std: per channel, of pixels scaled to 0..1.
        slice_size: train on this many patches at a time, so that memory does not depend on M: each
            slice is embedded again in the backward pass. None embeds all at once.
        compile: compile the selection pass.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        aggregator: Aggregator,
        heads: Mapping[str, Head],
        *,
        keep: int,
        chunk: int,
        mode: Mode = "iterative",
        position: bool = False,
        skip_blank: bool = False,
        readout: PatchReadout | None = None,
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
        slice_size: int | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self._format = memory_format(encoder)
        self.encoder = encoder.to(memory_format=self._format)  # type: ignore[call-overload]
        assert isinstance(aggregator, nn.Module)
        self.aggregator: Aggregator = aggregator
        self.tasks = tuple(heads)
        self.heads = nn.ModuleList(heads.values())  # a task may be called anything
        self.readout = readout
        if mode not in selection.MODES:
            raise ConfigError(f"mode={mode!r}: expected one of {', '.join(selection.MODES)}")
        self.keep, self.chunk, self.mode, self.position = keep, chunk, mode, position
        self.skip_blank, self.slice_size = skip_blank, slice_size
        self.register_buffer("mean", _per_channel(mean), persistent=False)
        self.register_buffer("std", _per_channel(std), persistent=False)
        self._fast = SelectionEncoder(self._prepare, compile=compile)

    @property
    def device(self) -> torch.device:
        """Where the model is, and patches go."""
        return self.mean.device

    # The select step

    def select(
        self,
        sources: Sequence[PatchSource],
        *,
        load: Load = "eager",
        seed: int = 0,
        embeddings: bool = False,
        tables: Sequence[ScoreTable] | None = None,
    ) -> Selected:
        """Choose M patches of each image, in evaluation and no-gradient mode (Sect. 2.1).

        Args:
            sources: the images of a batch, of any mix of N.
            load: ``eager`` has the pixels of the whole batch on the device, ``sequential`` those
                of one image, ``lazy`` those of one micro-batch. All select the same patches.
            seed: of the order in which patches are looked at.
            embeddings: hand over the embeddings of the patches chosen.
            tables: one per image to put the logits in, perhaps begun already.
        """
        if load not in LOADS:
            raise ConfigError(f"load={load!r}: expected one of {', '.join(LOADS)}")
        for source in sources:
            check_source(self.encoder, source)
        S = 0 if self.mode == "random" else self.aggregator.channels
        with evaluating(self):
            embed = self._fast.begin(self.encoder)
            if load == "eager":
                tables = tables or [empty_table(len(s), S, device=self.device) for s in sources]
                resident = [self._resident(s) for s in sources]
                return self._select(resident, tables, embed, seed=seed, embeddings=embeddings)
            groups = []
            for b, source in enumerate(sources):
                table = tables[b] if tables else empty_table(len(source), S, device=self.device)
                one = self._resident(source) if load == "sequential" else source
                groups.append(self._select([one], [table], embed, seed=seed, embeddings=embeddings))
                release(source)  # or every image of the batch would hold on to a cache of tiles
            return join(groups)

    def _select(
        self,
        sources: Sequence[PatchSource],
        tables: Sequence[ScoreTable],
        embed: EmbeddingPass,
        *,
        seed: int,
        embeddings: bool,
    ) -> Selected:
        lists = [Shortlist(2 * self.keep) for _ in sources]
        if self.mode != "random":
            self._score(sources, tables, embed, lists if embeddings else None)
            for source, table in zip(sources, tables, strict=True):
                check_scores(source, table.logits)
        choosable = [table.choosable() for table in tables]
        logits, _ = pad([logits.to(self.device) for logits, _ in choosable])  # (B, N, S)
        mask, _ = pad([shown.to(self.device) for _, shown in choosable])  # (B, N)
        order = selection.shuffled(mask, seed=seed)
        choose = getattr(selection, self.mode)
        chosen: Selection = choose(logits, keep=self.keep, chunk=self.chunk, mask=mask, order=order)
        chosen = chosen.trimmed()
        kept = [i[m] for i, m in zip(chosen.indices, chosen.mask, strict=True)]  # B x (K_b,)
        patches = [s.read(i.cpu()).to(self.device) for s, i in zip(sources, kept, strict=True)]
        found = None
        if embeddings:
            rows = zip(lists, kept, patches, strict=True)
            found = pad([shortlist.find(i, x, embed) for shortlist, i, x in rows])[0]  # (B, K, D)
        return Selected(selection=chosen, patches=pad(patches)[0], embeddings=found)

    def _score(
        self,
        sources: Sequence[PatchSource],
        tables: Sequence[ScoreTable],
        embed: EmbeddingPass,
        lists: Sequence[Shortlist] | None,
    ) -> None:
        """Fill in the logits of every patch; embeddings are let go, but for a short list."""
        score = self.aggregator.scorer()
        for blocks in blocks_of(sources, tables, self.device, skip_blank=self.skip_blank):
            patches = joined([block.patches for block in blocks])  # (n, ...)
            indices = joined([block.indices for block in blocks])
            logits = torch.empty(0, self.aggregator.channels, device=self.device)
            if len(patches):
                x = embed(patches)  # (n, D)
                logits = score(self._placed(x, indices))  # (n, S)
            first = 0
            for block in blocks:
                its = slice(first, first := first + len(block.indices))
                if lists is not None and len(block.indices):
                    lists[block.image].add(block.indices, logits[its], x[its])
                tables[block.image].add(block.spread(logits[its]))

    # The forward step

    def forward(self, patches: Tensor, selection: Selection) -> Output:
        """Embed the patches kept ``(B, K, ...)``, aggregate and classify (Sect. 2.2)."""
        return self.aggregate(self.embed(patches, selection.mask), selection)

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

    def aggregate(self, x: Tensor, selection: Selection) -> Output:
        """Embeddings ``(B, K, D)`` of the patches kept to an answer per task."""
        aggregated = self.aggregator(self._placed(x, selection.indices), selection.mask)
        tokens = aggregated.tokens.unbind(dim=1)  # T x (B, D)
        answers = zip(self.tasks, self.heads, tokens, strict=True)
        logits = {task: head(z) for task, head, z in answers}  # (B, C) each
        patch_logits, readout_logits = None, None
        if self.readout is not None:
            patch_logits, readout_logits = self.readout(x, aggregated.attention)
        return Output(logits, aggregated.attention, patch_logits, readout_logits)

    # Both steps

    def predict(
        self,
        source: PatchSource,
        *,
        load: Load = "lazy",
        seed: int = 0,
        table: ScoreTable | None = None,
    ) -> Prediction:
        """Select and aggregate: the answer for one image, and where it was found."""
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
        """The same for several images at once; what selection has embedded is used again."""
        for source in sources:
            source.coords  # noqa: B018  a file that cannot say where its patches are says so now
        chosen = self.select(sources, load=load, seed=seed, embeddings=True, tables=tables)
        assert chosen.embeddings is not None
        with evaluating(self):
            output = self.aggregate(chosen.embeddings, chosen.selection)
        return [self._prediction(source, chosen, output, b) for b, source in enumerate(sources)]

    def _prediction(
        self, source: PatchSource, chosen: Selected, output: Output, b: int
    ) -> Prediction:
        mask = chosen.selection.mask[b]
        attention = output.attention[b].mean(dim=1)[:, mask]  # (T, K)
        total, order = attention.mean(dim=0).sort(descending=True, stable=True)
        indices = chosen.selection.indices[b][mask][order].cpu()
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

    def _resident(self, source: PatchSource) -> MemoryPatches:
        """All of an image's patches, on the device."""
        patches = in_memory(source).patches
        if self.device.type == "cuda" and not patches.is_cuda:
            patches = patches.pin_memory()
        return MemoryPatches(patches.to(self.device, non_blocking=True), name=source.name)


def _activation(head: nn.Module) -> Callable[[Tensor], Tensor]:
    assert isinstance(head, Head)
    return head.activation


def _per_channel(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).view(-1, 1, 1)  # (C, 1, 1)
