"""The stacked encoder-decoder: every run is a stack of one, every stack one program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headtohead.model.aligned import product
from headtohead.model.attention import MultiHeadAttention
from headtohead.model.attention_context import AttentionContext, Cache
from headtohead.model.blocks import DecoderLayer, EncoderLayer
from headtohead.model.builder import Builder
from headtohead.model.layers import Record, StackedEmbedding, StackedLinear
from headtohead.model.members import MixedPositional
from headtohead.model.sizes import find_rows
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import RunConfig

Observe = Callable[[str, int | None, str, Tensor], None]
"""Receives role, layer, name and value of every step, on the explicit path.

The layer is None outside of layers. The names, in the order in which a post-norm model has them:

- before the layers ``embeddings``, ``scaled``, ``positions`` and ``sum``, behind them
  ``final_norm``, each only where there is one;
- of an attention those of ``MultiHeadAttention.forward``, then ``output``, ``residual``, ``norm``;
- of a feed-forward ``feed_forward.inner``, ``.activated``, ``.output``, ``.residual``, ``.norm``;
  of one between the attentions of a decoder layer the same under ``between``.

What is not an attention's inside is ``[member, tokens, width]``, the tokens of a batch in one row.
"""


class Transformer(nn.Module):
    """The encoder-decoder of Vaswani et al. 2017, section 3, for all members of a stack at once.

    Args:
        config: The variant.
        seeds: One per member; None builds a single member of shapes without numbers.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        configs: Of each member, where they differ in what ``members.py`` allows.

    Raises:
        HeadToHeadError: If the configuration names an unknown entry or its numbers do not fit.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int] | None,
        source_words: int,
        target_words: int,
        configs: Sequence[RunConfig] | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        build = Builder(configs or [config] * len(seeds or [1]), seeds)
        model = config.model
        self.has_numbers = seeds is not None
        self.members = len(build.generators)
        self.rows = find_rows(build.config, source_words, target_words)
        """Words that the tables and the logits have, at least those of the vocabularies."""
        self.attends_to_source = build.config.quirks.cross_attention_memory == "encoder"
        """Whether the second attention of the decoder reads the encoder, or the decoder itself."""
        self.positionals = nn.ModuleDict({role: build.positional(role) for role in ROLES})
        build.positionals = self.positionals
        init = build.init
        self.source_embedding = (
            None
            if model.tie_embeddings in ("all", "embeddings")
            else StackedEmbedding(build.generators, self.rows.source, model.d_model, init)
        )
        self.target_embedding = StackedEmbedding(build.generators, self.rows.target, model.d_model, init)
        for name in build.config.quirks.shared_modules:
            build.share(name)
        self.shared = nn.ModuleDict(build.shared)
        self.encoder = nn.ModuleList(EncoderLayer(build, layer) for layer in range(model.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(build, layer) for layer in range(model.decoder_layers))
        self.encoder_norm = build.norm() if model.final_norm else None
        self.decoder_norm = build.norm() if model.final_norm else None
        self.words = (
            StackedLinear(build.generators, model.d_model, [self.rows.target], model.bias, init)
            if model.tie_embeddings in ("none", "embeddings")
            else None
        )
        self.maskings: dict[str, Masking] = {role: build.masking(role) for role in ROLES}
        self.dropout_rng = build.dropout_rng
        """The random numbers of dropout; training tells it each step."""
        self.dropout = build.dropout("embedding")
        self.embedding_scale = model.d_model**0.5 if model.embedding_scale == "sqrt-d_model" else None
        self._reads_row = {
            role: one.index(one.options) == "row"
            for role, one in self.positionals.items()
            if isinstance(one, Positional)
        }
        self._draws = {
            role: isinstance(one, Positional) and "draw" in one.ways for role, one in self.positionals.items()
        }
        self.bounds = {role: list(build.bounds(role)) for role in ROLES}
        """How many places the entries of a role know; ``encode`` and ``decode`` refuse more."""
        self._ranges: dict[tuple[int, int, torch.device], Range] = {}
        self._casts: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def position_is_row(self) -> bool:
        """Whether a sentence's logits depend on its row in the batch.

        Where they do, only batches of one give what a sentence gives alone, and a batch cut into
        pieces gives something else.
        """
        return any(self._reads_row.values())

    @property
    def obstacle(self) -> str:
        """Why steps cannot be recorded and replayed; empty if they can."""
        if any(self._draws.values()):
            return "its encoding draws positions anew"
        attentions = [one for one in self.modules() if isinstance(one, MultiHeadAttention)]
        if any(one.asks_masks for one in attentions):
            return "its attention asks each mask what it shows"
        return ""

    @property
    def paths(self) -> dict[str, str]:
        """``"fused"`` or ``"explicit"`` for each role, as training takes it."""
        encoder, decoder = self.encoder[0], self.decoder[0]
        assert isinstance(encoder, EncoderLayer)
        assert isinstance(decoder, DecoderLayer)
        return {"encoder": encoder.attention.path, "decoder": decoder.attention.path, "cross": decoder.cross.path}

    def forward(self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        """Return logits ``[member, batch, time, vocab]`` of the next token after each target token.

        Args:
            source: Ids ``[member, batch, source time]``, padding on the right.
            source_lengths: Live tokens, ``[member, batch]``.
            target: Ids ``[member, batch, target time]``, starting with <sos>.
            target_lengths: Live tokens, ``[member, batch]``.
        """
        return self.project(self.hidden(source, source_lengths, target, target_lengths))

    def hidden(self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor) -> Tensor:
        """Return what ``forward`` projects to words, ``[member, batch, time, d_model]``."""
        memory = self.encode(source, source_lengths)
        return self.decode(target, target_lengths, memory, source_lengths)

    def encode(
        self, source: Tensor, lengths: Tensor, observe: Observe | None = None, rows: Rows | None = None
    ) -> Tensor:
        """Return the encoder's output, ``[member, batch, time, d_model]``.

        ``rows`` tells an encoding that counts rows of the batch others than those there are.
        """
        time = source.shape[-1]
        self._check("encoder", source.shape[1] if rows is None else rows.count, time)
        drawn = self._draw("encoder", source)
        view = self._view("encoder", (0, time), (0, time), lengths, drawn)
        embedding = self.source_embedding or self.target_embedding
        x = self._embed(source, embedding, "encoder", 0, observe, drawn, rows)
        for index, layer in enumerate(self.encoder):
            x = layer(x, view, _recorder(observe, "encoder", index))
        if self.encoder_norm is not None:
            x = self.encoder_norm(x)
            if observe is not None:
                observe("encoder", None, "final_norm", x)
        return x.view(*source.shape, -1)

    def decode(
        self,
        target: Tensor,
        lengths: Tensor,
        memory: Tensor,
        memory_lengths: Tensor,
        observe: Observe | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        """Return the decoder's output, ``[member, batch, time, d_model]``."""
        places = (0, target.shape[-1])
        self._check("decoder", target.shape[1] if rows is None else rows.count, places[1])
        drawn = self._draw("decoder", target)
        own = self._view("decoder", places, places, lengths, drawn)
        cross = self._cross_view(places, places[1], lengths, memory, memory_lengths)
        x = self._embed(target, self.target_embedding, "decoder", 0, observe, drawn, rows)
        memory = memory.flatten(1, 2)
        for index, layer in enumerate(self.decoder):
            records = (_recorder(observe, "decoder", index), _recorder(observe, "cross", index))
            x = layer(x, memory, (own, cross), records=records)
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
            if observe is not None:
                observe("decoder", None, "final_norm", x)
        return x.view(*target.shape, -1)

    def step(
        self,
        token: Tensor,
        position: int,
        memory: Tensor,
        memory_lengths: Tensor,
        caches: Sequence[tuple[Cache, Cache]],
        rows: Rows | None = None,
    ) -> Tensor:
        """Return the decoder's output for one new token of each row after the cached ones.

        A sentence may be written in several ways at once: its rows stand side by side, and read
        one memory.

        Args:
            token: Ids ``[member, batch · ways, 1]``.
            position: The place of the token, the same in all rows.
            memory: The encoder's output, ``[member, batch, time, d_model]``.
            memory_lengths: Live source tokens, ``[member, batch]``.
            caches: As ``caches`` makes them.
            rows: What an encoding that counts rows of the batch is told.
        """
        count, written = token.shape[1], position + 1
        self._check("decoder", count if rows is None else rows.count, written)
        # All rows have written as much: the mask of one is the mask of all.
        live = memory_lengths.new_full((1,), written)
        own = self._step_view("decoder", position, 1, (0, written), live)
        read = memory.shape[2] if self.attends_to_source else written
        self._check("cross", memory.shape[1], max(written, read))
        if self.attends_to_source:
            ways = count // memory.shape[1]
            cross = self._step_view("cross", position, ways, (0, read), memory_lengths)
        else:
            cross = self._step_view("cross", position, 1, (0, written), live)
        x = self._embed(token, self.target_embedding, "decoder", position, rows=rows)
        memory = memory.flatten(1, 2)
        for layer, pair in zip(self.decoder, caches, strict=True):
            x = layer(x, memory, (own, cross), pair)
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
        return x.view(*token.shape, -1)

    def _step_view(
        self, role: str, position: int, ways: int, keys: tuple[int, int], lengths: Tensor
    ) -> AttentionContext:
        """Return what ``ways`` tokens at one place see, without a mask that hides nothing."""
        if ways == 1:
            view = self._view(role, (position, 1), keys, lengths)
        else:
            key = (position, -ways, lengths.device)
            if key not in self._ranges:
                places = torch.full((ways,), position, device=lengths.device)
                self._ranges[key] = Range(places, places.unsqueeze(0), places.unsqueeze(1))
            view = self._view_of(role, self._ranges[key], self._positions(*keys, lengths.device), lengths)
        if view.mask is not None and bool(view.mask.all()):
            return AttentionContext(view.query_positions, view.key_positions, None)
        return view

    def caches(self, memory: Tensor, length: int, ways: int = 1) -> list[tuple[Cache, Cache]]:
        """Return empty caches for up to ``length`` target tokens over ``memory``.

        With several ``ways`` of writing a sentence, each has its own tokens; what the encoder read
        is there once.
        """
        own = (memory.shape[1] * ways, length)
        second = tuple(memory.shape[1:3]) if self.attends_to_source else own
        return [
            (self._cache(memory, layer.attention, *own), self._cache(memory, layer.cross, *second))
            for layer in self.decoder
            if isinstance(layer, DecoderLayer)
        ]

    @staticmethod
    def _cache(memory: Tensor, attention: MultiHeadAttention, rows: int, length: int) -> Cache:
        geometry = attention.context.geometry
        lead = (memory.shape[0], rows)
        return Cache(
            memory.new_empty(*lead, geometry.kv_heads, 0, geometry.key_width),
            memory.new_empty(*lead, geometry.value_heads, 0, geometry.value_width),
            length,
        )

    def project(self, x: Tensor) -> Tensor:
        """Return logits over the target vocabulary, ``[member, batch, time, vocab]``."""
        flat = x.flatten(1, 2)
        if self.words is not None:
            logits = product(flat, self.words.weight, self.words.bias)
        else:
            logits = product(flat, self.target_embedding.weight.transpose(1, 2), None)
        return logits.view(*x.shape[:3], -1)

    def member_state(self, member: int) -> dict[str, Tensor]:
        """Return one member's weights by their names in a stack of its own, without its axis."""
        return {name: value[place].clone() for name, value, place in self._of_member(member, self.state_dict())}

    @torch.no_grad()
    def load_member(self, member: int, weights: Mapping[str, Tensor]) -> None:
        """Give one member the weights that ``member_state`` returned."""
        for name, value, place in self._of_member(member, self.state_dict()):
            value[place].copy_(weights[name])

    def members_of(self, name: str) -> tuple[int, ...]:
        """Return the members that the first axis of a parameter or buffer counts."""
        return self.owner(name)[1]

    def owner(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return what a tensor is called in a stack of one, and the members that have it."""
        for role, one in self.positionals.items():
            prefix = f"positionals.{role}.entries."
            if isinstance(one, MixedPositional) and name.startswith(prefix):
                number, _, rest = name.removeprefix(prefix).partition(".")
                return f"positionals.{role}.{rest}", one.places.members[int(number)]
        return name, tuple(range(self.members))

    def _of_member(self, member: int, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor, int]]:
        """Yield the tensors that a member has a part of, by plain name, and its place in them."""
        for name, value in tensors.items():
            plain, members = self.owner(name)
            if member in members:
                yield plain, value, members.index(member)

    def _embed(
        self,
        ids: Tensor,
        embedding: StackedEmbedding,
        role: str,
        start: int,
        observe: Observe | None = None,
        drawn: Tensor | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        x: Tensor = embedding(ids)
        record = _recorder(observe, role, None)
        if record is not None:
            record("embeddings", x.flatten(1, 2))
        if self.embedding_scale is not None:
            x = x * self.embedding_scale
            if record is not None:
                record("scaled", x.flatten(1, 2))
        places = self._places(ids, role, start, drawn, rows)
        if places is not None:
            added = places.view(x.shape).to(x) if drawn is not None else self._cast(places, x.dtype)
            x = x + added
            if record is not None:
                record("positions", added.expand_as(x).flatten(1, 2))
                record("sum", x.flatten(1, 2))
        dropped: Tensor = self.dropout(x.flatten(1, 2))
        return dropped

    def _check(self, role: str, rows: int, places: int) -> None:
        """Refuse more than the entries of a role are defined for."""
        for bound in self.bounds[role]:
            bound.check(places, rows)

    def _draw(self, role: str, ids: Tensor) -> Tensor | None:
        """Return what training calls the places of a batch, ``[member · batch, time]``, or None."""
        if not (self.training and self._draws[role]):
            return None
        positional = self.positionals[role]
        assert isinstance(positional, Positional)
        drawn = positional.draw(*ids.shape[1:])
        return None if drawn is None else drawn.flatten(0, 1)

    def _places(self, ids: Tensor, role: str, start: int, drawn: Tensor | None, rows: Rows | None) -> Tensor | None:
        """Return what the encoding of a role adds to embeddings."""
        positional = self.positionals[role]
        assert isinstance(positional, Positional)
        if drawn is not None:
            positions = drawn
        elif self._reads_row[role]:
            if rows is not None:
                return self._told_rows(positional, role, rows)
            positions = self._positions(0, ids.shape[1], ids.device).column
        else:
            positions = self._positions(start, ids.shape[-1], ids.device).row
        return positional.embed(positions, role)

    def _told_rows(self, positional: Positional, role: str, rows: Rows) -> Tensor | None:
        """Return what the encoding adds to each sentence, ``[member, batch, 1, d_model]``."""
        table = positional.embed(self._positions(0, rows.count, rows.chosen.device).column, role)
        if table is None or rows.count == 1:
            return table
        members = len(rows.chosen)
        own = torch.arange(members, device=rows.chosen.device).unsqueeze(1)
        return table.expand(members, -1, -1, -1)[own, rows.chosen]

    def _cast(self, table: Tensor, dtype: torch.dtype) -> Tensor:
        """Convert a table; one without gradient, which the encoding remembers, only once."""
        if table.dtype == dtype or table.requires_grad:
            return table.to(dtype)
        known = self._casts.get(id(table))
        if known is None or known[1].dtype != dtype:
            if len(self._casts) >= 512:
                self._casts.clear()
            # The table is kept beside its copy: an id is only unique among living objects.
            known = self._casts[id(table)] = (table, table.to(dtype))
        return known[1]

    def _positions(self, start: int, count: int, device: torch.device) -> Range:
        """Return a range of positions, the same tensor objects every time."""
        key = (start, count, device)
        if key not in self._ranges:
            places = torch.arange(start, start + count, device=device)
            self._ranges[key] = Range(places, places.unsqueeze(0), places.unsqueeze(1))
        return self._ranges[key]

    def _view(
        self, role: str, queries: tuple[int, int], keys: tuple[int, int], lengths: Tensor, drawn: Tensor | None = None
    ) -> AttentionContext:
        query, key = (self._positions(*places, lengths.device) for places in (queries, keys))
        return self._view_of(role, query, key, lengths, drawn)

    def _view_of(
        self, role: str, query: Range, key: Range, lengths: Tensor, drawn: Tensor | None = None
    ) -> AttentionContext:
        mask = self.maskings[role].mask(role, query.places, key.places, lengths.flatten())
        if mask is not None:
            mask = mask[None, :, None] if len(mask) == 1 else mask.view(self.members, -1, 1, *mask.shape[1:])
        if drawn is not None:
            return AttentionContext(drawn, drawn, mask, drawn=True)
        return AttentionContext(query.row, key.row, mask, has_numbers=self.has_numbers)

    def _cross_view(
        self, queries: tuple[int, int], written: int, lengths: Tensor, memory: Tensor, memory_lengths: Tensor
    ) -> AttentionContext:
        """Return what the second attention sees: the memory, or the ``written`` target tokens."""
        read = memory.shape[2] if self.attends_to_source else written
        self._check("cross", memory.shape[1], max(written, read))
        if self.attends_to_source:
            return self._view("cross", queries, (0, read), memory_lengths)
        return self._view("cross", queries, (0, written), lengths)


@dataclass(frozen=True)
class Rows:
    """Which row of its batch each sentence is said to be in, for encodings that count rows.

    ``chosen`` are rows below ``count``, ``[member, batch]``.
    """

    count: int
    chosen: Tensor


class Range(NamedTuple):
    """Positions from one place to another, ``[count]``, ``[1, count]`` and ``[count, 1]``."""

    places: Tensor
    row: Tensor
    column: Tensor


def _recorder(observe: Observe | None, role: str, layer: int | None) -> Record | None:
    if observe is None:
        return None
    return lambda name, value: observe(role, layer, name, value)
