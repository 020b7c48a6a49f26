"""Iterative Patch Selection: score all patches without gradients, learn from the best M.

Letters: B images, N patches of an image, M kept (``keep``), I per step (``chunk``), K <= M kept
of an image with few patches, D embedding size, S score channels.

This file has the two steps of Algorithm 1; the choice of patches by score is in `ips.selection`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Literal, Protocol
from zlib import crc32

import torch
from torch import Tensor, nn

from ips import selection
from ips.errors import ConfigError
from ips.models.checks import check_scores
from ips.models.net import Load, Net, Sources, Tables
from ips.models.outputs import Output, Selected, join
from ips.models.scoring import ScoreTable, Shortlist, lazy_runs, unscored_blocks
from ips.models.screen import Screen, Screened
from ips.nn import Aggregator, Head, PatchLead, PatchReadout, evaluating
from ips.nn.embedding import EmbeddingPass, SelectionEncoder, joined
from ips.patches import MemoryPatches, PatchSource, in_memory, pad
from ips.selection import Mode, Selection


class Scoring(Protocol):
    """What patches can be chosen by: S scores of each, from its embedding alone."""

    channels: int

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return a function from embeddings ``(n, D)`` to scores ``(n, S)``, for one pass."""
        ...


class SelectingNet(Net):
    """A network that selects M patches of an image, then embeds and aggregates only these.

    IPS selects by the aggregator's attention. Random patch selection (RPS) is the same network with
    ``mode="random"``; DeepMIL has gated attention and ``keep=None``, or in the memory of IPS a
    random sample of M patches.

    Args:
        encoder: from ``(n, C, h, w)`` floats, or ``(n, D_in)`` features, to ``(n, D)``.
        aggregator: combines embeddings, and scores them for selection: the paper's
            `ips.nn.CrossAttentionTransformer`, or `ips.nn.GatedAttention` (Appendix E). None for a
            subclass that aggregates in its own way.
        heads: one per task, in the order of the aggregator's tokens.
        keep: M; None for all patches.
        chunk: I.
        mode: ``iterative`` (the paper), ``exact`` or ``random``.
        skip_blank: ignore patches of a single colour, also where only the margin that neighbours
            show, too, has others. Otherwise they can take most of the M places if most of an image
            is empty.
        compile: compile the encoder for the select step.
        micro_batch: patches embedded at a time in the select step: a ``fixed`` number that suits
            the device, or a ``chunk``, I patches of every image (B·I), as in the paper.
        screen: chooses the patches that are scored in evaluation; None to score all.
        position: add the 1-D sinusoidal encoding of the patch index to the embeddings.
        readout: the patch-level head of Sect. 4.5.
        mean: mean per channel of pixels scaled to 0..1.
        std: standard deviation per channel of these pixels.
        slice_size: number of patches to embed at a time in training, see `Net`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        aggregator: Aggregator | None,
        heads: Mapping[str, Head],
        *,
        keep: int | None,
        chunk: int,
        mode: Mode = "iterative",
        skip_blank: bool = False,
        compile: bool = False,
        micro_batch: Literal["fixed", "chunk"] = "fixed",
        screen: Screen | None = None,
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
        if mode not in selection.MODES:
            raise ConfigError(f"mode={mode!r}: expected one of {', '.join(selection.MODES)}")
        self.aggregator = aggregator
        self.keep, self.chunk, self.mode, self.skip_blank = keep, chunk, mode, skip_blank
        self.micro_batch, self.screen = micro_batch, screen
        self.scores_all_patches = mode != "random"
        self.needs_scoring = self.scores_all_patches or skip_blank
        if not self.scores_all_patches:
            self.channels = int(skip_blank)  # one channel that only marks blank patches
        elif aggregator is not None:
            self.channels = aggregator.channels
        self._fast = SelectionEncoder(self.normalise, compile=compile)

    def scorer(self) -> Callable[[Tensor], Tensor]:
        """Return a function from embeddings ``(n, D)`` to logits ``(n, S)``, for one pass.

        These are the aggregator's attention logits: selection and aggregation share one attention.
        """
        assert self.aggregator is not None
        return self.aggregator.scorer()

    def aggregate(self, x: Tensor, selection: Selection) -> Output:
        """Classify the embeddings ``(B, K, D)`` of the patches kept (Sect. 2.2)."""
        assert self.aggregator is not None
        placed = self.add_position(x, selection.indices)
        return self._aggregate(self.aggregator, x, placed, selection.mask)

    def forward(self, patches: Tensor, selection: Selection) -> Output:
        """The forward step: embed the patches kept ``(B, K, ...)``, aggregate, classify."""
        return self.aggregate(self.embed(patches, selection.mask), selection)

    def select(
        self,
        sources: Sources,
        *,
        load: Load = "eager",
        seed: int = 0,
        embeddings: bool = False,
        tables: Tables = None,
        by: Scoring | None = None,
    ) -> Selected:
        """The select step: choose M patches of each image, without gradients (Sect. 2.1).

        Args:
            sources: patches of the images; their number may differ.
            load: ``eager`` keeps the patches of the whole batch on the device, ``sequential`` those
                of one image, ``lazy`` those of one micro-batch. All select the same patches.
            seed: random seed of the order in which patches are visited.
            embeddings: return the embeddings of the patches kept, instead of the patches.
            tables: one per image for the logits; those that a table has already are reused.
            by: what scores the patches, instead of the network itself.
        """
        self._check(sources, load)
        by = by or self
        with evaluating(self):
            at_once = 1 if load == "sequential" else len(sources)  # images scored together
            size = at_once * self.chunk if self.micro_batch == "chunk" else None
            embed = self._fast.begin(self.encoder, size=size)
            runs: Iterable[slice] = (slice(b, b + at_once) for b in range(0, len(sources), at_once))
            if load == "lazy":
                runs = lazy_runs(sources, self.device, skip_blank=self.skip_blank, size=size)
            parts = []
            for run in runs:
                part = sources[run] if load == "lazy" else self.preload(sources[run])
                scores = tables[run] if tables else [self.empty_table(s, by.channels) for s in part]
                parts.append(
                    self._select(part, scores, embed, by, seed=seed, embeddings=embeddings)
                )
                if load != "eager":
                    for source in sources[run]:
                        source.close()  # or the whole batch would keep its caches of tiles
            return join(parts)

    def _select(
        self,
        sources: Sources,
        tables: Sequence[ScoreTable],
        embed: EmbeddingPass,
        by: Scoring,
        *,
        seed: int,
        embeddings: bool,
    ) -> Selected:
        M = max(len(source) for source in sources) if self.keep is None else self.keep
        shortlists = [Shortlist(2 * M) for _ in sources]
        if self.needs_scoring:
            self._score(sources, tables, embed, by, shortlists if embeddings else None)
        rows, masks = zip(*(table.selectable() for table in tables), strict=True)
        logits, _ = pad([row.to(self.device) for row in rows])  # (B, N, S)
        mask, _ = pad([mask.to(self.device) for mask in masks])  # (B, N)
        order = selection.shuffled(mask, seed=[seed + self._image_seed(s) for s in sources])
        choose = getattr(selection, self.mode)
        chosen: Selection = choose(logits, keep=M, chunk=self.chunk, mask=mask, order=order)
        chosen = chosen.trimmed()
        kept = [i[m] for i, m in zip(chosen.indices, chosen.mask, strict=True)]  # B x (K_b,)
        if embeddings:
            found = [
                shortlist.find(indices, source, embed)
                for shortlist, indices, source in zip(shortlists, kept, sources, strict=True)
            ]
            return Selected(chosen, embeddings=pad(found)[0], tables=tables)  # (B, K, D)
        patches = [s.read(i.cpu()).to(self.device) for s, i in zip(sources, kept, strict=True)]
        return Selected(chosen, pad(patches)[0], tables=tables)  # (B, K, ...)

    def _score(
        self,
        sources: Sources,
        tables: Sequence[ScoreTable],
        embed: EmbeddingPass,
        by: Scoring,
        shortlists: Sequence[Shortlist] | None,
    ) -> None:
        """Fill the tables with logits; keep only a short list of the embeddings."""
        score = by.scorer() if self.scores_all_patches else None
        unscored = unscored_blocks(
            sources, tables, self.device, skip_blank=self.skip_blank, size=embed.size
        )
        for blocks in unscored:
            patches = joined([block.patches for block in blocks])  # (n, ...)
            logits = torch.zeros(len(patches), by.channels, device=self.device)
            x = None
            if score is not None and len(patches):
                x = embed(patches)  # (n, D)
                indices = joined([block.indices for block in blocks]).to(self.device)
                logits = score(self.add_position(x, indices))  # (n, S)
            end = 0
            for block in blocks:
                rows = slice(end, end := end + len(block.indices))
                if shortlists is not None and x is not None and len(block.indices):
                    shortlists[block.image].add(
                        block.indices.to(self.device), logits[rows], x[rows]
                    )
                tables[block.image].put(block.indices, logits[rows])
        for source, table in zip(sources, tables, strict=True):
            check_scores(source, table.logits)

    def _image_seed(self, source: PatchSource) -> int:
        """With random selection each image has its own seed, or all would keep the same indices."""
        return crc32(source.name.encode()) if self.mode == "random" else 0

    def preload(self, sources: Sources) -> list[PatchSource]:
        """Copy all patches of the images to the device."""
        return [self._load(source) for source in sources]

    def _load(self, source: PatchSource) -> MemoryPatches:
        memory = in_memory(source)
        patches = memory.patches
        if self.device.type == "cuda" and not patches.is_cuda:
            patches = patches.pin_memory()
        loaded = copy(memory)
        loaded.patches = patches.to(self.device, non_blocking=True)
        return loaded

    def select_for_training(
        self,
        sources: Sources,
        *,
        load: Load,
        seed: int,
        tables: Tables = None,
        by: Scoring | None = None,
    ) -> Selected:
        """Select M patches of each image, or return all if no image has more than M."""
        few = self.keep is None or all(len(source) <= self.keep for source in sources)
        if not few or self.skip_blank:
            return self.select(sources, load=load, seed=seed, tables=tables, by=by)
        patches, mask = pad([in_memory(source).patches.to(self.device) for source in sources])
        for source in sources:
            source.close()
        indices = torch.arange(mask.shape[1], device=self.device) * mask  # (B, N)
        return Selected(Selection(indices, mask, mask / mask.sum(dim=1, keepdim=True)), patches)

    def learn(self, chosen: Selected, lead: PatchLead | None = None) -> Output:
        """The forward step on the patches chosen; with a lead, also its logits."""
        assert chosen.patches is not None
        kept = chosen.selection
        if lead is None:
            output: Output = self(chosen.patches, kept)
            return output
        x = self.embed(chosen.patches, kept.mask)  # (B, K, D)
        logits = lead(self.add_position(x, kept.indices), kept.mask)
        return replace(self.aggregate(x, kept), lead_logits=logits)

    def _forward_train(self, sources: Sources, load: Load, seed: int, progress: float) -> Output:
        return self.learn(self.select_for_training(sources, load=load, seed=seed))

    def _forward_eval(
        self, sources: Sources, load: Load, seed: int, tables: Tables
    ) -> tuple[Output, Selection]:
        tables = tables or [self.empty_table(source) for source in sources]
        chosen = self._screened(sources, load, seed, tables)
        assert chosen.embeddings is not None
        return self.aggregate(chosen.embeddings, chosen.selection), chosen.selection

    def _screened(
        self, sources: Sources, load: Load, seed: int, tables: Sequence[ScoreTable]
    ) -> Selected:
        """Select among the patches of the screen, or among all where it seems to miss some."""
        screen, keep = self.screen, self.keep
        if screen is None or keep is None:
            return self.select(sources, load=load, seed=seed, embeddings=True, tables=tables)
        for source, table in zip(sources, tables, strict=True):
            screen.leave_out(source, table, keep=keep)
        chosen = self.select(sources, load="lazy", seed=seed, embeddings=True, tables=tables)
        doubtful = [table for table in tables if screen.is_doubtful(table, keep=keep)]
        for table in doubtful:
            table.complete()
        if doubtful:  # patches that are scored already are not scored again
            chosen = self.select(sources, load="lazy", seed=seed, embeddings=True, tables=tables)
        return chosen

    def screened(self, table: ScoreTable) -> Screened | None:
        return None if self.screen is None else self.screen.result(table)

    def _describe_selection(self) -> str:
        chunks = f", I = {self.chunk} at a time" if self.mode == "iterative" else ""
        screened = "" if self.screen is None else self.screen.description
        return "all" if self.keep is None else f"M = {self.keep}{chunks}{screened}"


class IPSNet(SelectingNet):
    """Iterative Patch Selection (Sect. 2), with the arguments of `SelectingNet`."""
