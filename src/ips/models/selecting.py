"""The select step: look at every patch without gradients, keep M of them (Sect. 2.1).

Letters: B images, N patches of an image, M kept (``keep``), I per step (``chunk``), K <= M kept
of an image with few patches, D embedding size, S channels of score.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Required, Unpack
from zlib import crc32

import torch
from torch import Tensor, nn

from ips import selection
from ips.errors import ConfigError
from ips.models.blocks import blocks_of
from ips.models.checks import check_scores, check_source
from ips.models.net import Load, Net, Settings, check_load
from ips.models.outputs import Output, Selected, join
from ips.models.shortlist import Shortlist
from ips.models.table import ScoreTable, empty_table
from ips.nn import Head, evaluating
from ips.nn.embedding import EmbeddingPass, SelectionEncoder, joined
from ips.patches import PatchSource, in_memory, pad
from ips.selection import Mode, Selection


class SelectSettings(Settings, total=False):
    """What a method that selects takes by name."""

    keep: Required[int | None]
    chunk: Required[int]
    mode: Mode
    skip_blank: bool
    compile: bool


class SelectingNet(Net):
    """A method that learns from M patches of an image, chosen by a score of each patch alone.

    Args:
        encoder, heads: see `Net`.
        keep: M; None for all patches.
        chunk: I.
        mode: ``iterative`` (the paper), ``exact`` or ``random``.
        skip_blank: pass over patches of one colour, as if the image did not have them. Where most
            of an image is empty, empty patches can otherwise take most of the M places.
        compile: compile the selection pass.
        settings: see `Net`.
    """

    def __init__(
        self,
        encoder: nn.Module,
        heads: Mapping[str, Head],
        *,
        keep: int | None,
        chunk: int,
        mode: Mode = "iterative",
        skip_blank: bool = False,
        compile: bool = False,
        **settings: Unpack[Settings],
    ) -> None:
        super().__init__(encoder, heads, **settings)
        if mode not in selection.MODES:
            raise ConfigError(f"mode={mode!r}: expected one of {', '.join(selection.MODES)}")
        self.keep, self.chunk, self.mode, self.skip_blank = keep, chunk, mode, skip_blank
        self._fast = SelectionEncoder(self._prepare, compile=compile)

    @property
    def looks(self) -> bool:
        """Whether patches have to be looked at to choose among them."""
        return self.mode != "random" or self.skip_blank

    @abstractmethod
    def scorer(self) -> Callable[[Tensor], Tensor]:
        """A function from embeddings ``(n, D)`` to logits ``(n, S)``, for one selection pass."""

    @abstractmethod
    def aggregate(self, x: Tensor, selection: Selection) -> Output:
        """Embeddings ``(B, K, D)`` of the patches kept to an answer per task."""

    def learn(
        self, sources: Sequence[PatchSource], *, load: Load, seed: int, progress: float = 0.0
    ) -> Output:
        """Select, then embed and aggregate with gradients (Algorithm 1)."""
        chosen = self.choose(sources, load=load, seed=seed)
        output: Output = self(chosen.patches, chosen.selection)
        return output

    def choose(self, sources: Sequence[PatchSource], *, load: Load, seed: int) -> Selected:
        """What to learn from: M selected patches, or simply all where there are no more than M."""
        few = self.keep is None or all(len(source) <= self.keep for source in sources)
        if not few or self.skip_blank:
            return self.select(sources, load=load, seed=seed)
        check_load(load)
        for source in sources:
            check_source(self.encoder, source)
        patches, mask = pad([in_memory(source).patches.to(self.device) for source in sources])
        for source in sources:
            source.close()
        indices = torch.arange(mask.shape[1], device=self.device) * mask  # (B, N)
        return Selected(Selection(indices, mask, mask / mask.sum(dim=1, keepdim=True)), patches)

    def answer(
        self,
        sources: Sequence[PatchSource],
        *,
        load: Load = "lazy",
        seed: int = 0,
        tables: Sequence[ScoreTable] | None = None,
    ) -> tuple[Output, Selection]:
        """Select and aggregate; what selection has embedded is used again."""
        chosen = self.select(sources, load=load, seed=seed, embeddings=True, tables=tables)
        assert chosen.embeddings is not None
        with evaluating(self):
            return self.aggregate(chosen.embeddings, chosen.selection), chosen.selection

    def forward(self, patches: Tensor, selection: Selection) -> Output:
        """The forward step: embed the patches kept ``(B, K, ...)``, aggregate, classify."""
        return self.aggregate(self.embed(patches, selection.mask), selection)

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
            embeddings: hand over the embeddings of the patches chosen, instead of the patches.
            tables: one per image to put the logits in, perhaps begun already.
        """
        check_load(load)
        for source in sources:
            check_source(self.encoder, source)
        with evaluating(self):
            embed = self._fast.begin(self.encoder)
            if load == "eager":
                tables = tables or [self._table(s) for s in sources]
                resident = [self.resident(s) for s in sources]
                return self._select(resident, tables, embed, seed=seed, embeddings=embeddings)
            groups = []
            for b, source in enumerate(sources):
                table = tables[b] if tables else self._table(source)
                one = self.resident(source) if load == "sequential" else source
                groups.append(self._select([one], [table], embed, seed=seed, embeddings=embeddings))
                source.close()  # or every image of the batch would hold on to a cache of tiles
            return join(groups)

    def _table(self, source: PatchSource) -> ScoreTable:
        return empty_table(len(source), self.channels, device=self.device)

    def _select(
        self,
        sources: Sequence[PatchSource],
        tables: Sequence[ScoreTable],
        embed: EmbeddingPass,
        *,
        seed: int,
        embeddings: bool,
    ) -> Selected:
        M = max(len(source) for source in sources) if self.keep is None else self.keep
        lists = [Shortlist(2 * M) for _ in sources]
        if self.looks:
            self._score(sources, tables, embed, lists if embeddings else None)
            for source, table in zip(sources, tables, strict=True):
                check_scores(source, table.logits)
        choosable = [table.choosable() for table in tables]
        logits, _ = pad([logits.to(self.device) for logits, _ in choosable])  # (B, N, S)
        mask, _ = pad([shown.to(self.device) for _, shown in choosable])  # (B, N)
        order = selection.shuffled(mask, seed=[seed + self._own_chance(s) for s in sources])
        choose = getattr(selection, self.mode)
        chosen: Selection = choose(logits, keep=M, chunk=self.chunk, mask=mask, order=order)
        chosen = chosen.trimmed()
        kept = [i[m] for i, m in zip(chosen.indices, chosen.mask, strict=True)]  # B x (K_b,)
        if embeddings:
            rows = zip(lists, kept, sources, strict=True)
            found = [shortlist.find(i, source, embed) for shortlist, i, source in rows]
            return Selected(selection=chosen, embeddings=pad(found)[0])  # (B, K, D)
        patches = [s.read(i.cpu()).to(self.device) for s, i in zip(sources, kept, strict=True)]
        return Selected(selection=chosen, patches=pad(patches)[0])

    def _own_chance(self, source: PatchSource) -> int:
        """At random each image has a draw of its own, or a test would look at M places in all."""
        return crc32(source.name.encode()) if self.mode == "random" else 0

    def _score(
        self,
        sources: Sequence[PatchSource],
        tables: Sequence[ScoreTable],
        embed: EmbeddingPass,
        lists: Sequence[Shortlist] | None,
    ) -> None:
        """Fill in the logits of every patch; embeddings are let go, but for a short list."""
        score = self.scorer()
        for blocks in blocks_of(sources, tables, self.device, skip_blank=self.skip_blank):
            patches = joined([block.patches for block in blocks])  # (n, ...)
            indices = joined([block.indices for block in blocks])
            logits = torch.zeros(len(patches), self.channels, device=self.device)
            scored = len(patches) > 0 and self.mode != "random"
            if scored:
                x = embed(patches)  # (n, D)
                logits = score(self._placed(x, indices))  # (n, S)
            first = 0
            for block in blocks:
                its = slice(first, first := first + len(block.indices))
                if lists is not None and scored and len(block.indices):
                    lists[block.image].add(block.indices, logits[its], x[its])
                tables[block.image].add(block.spread(logits[its]))
