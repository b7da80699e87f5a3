"""The stacked encoder-decoder: every run is a stack of one, every stack one program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from headtohead import plugins
from headtohead.experiment.schema import RunConfig
from headtohead.families.entry import ROLES
from headtohead.families.masking import Masking
from headtohead.families.positional import BuildContext, Positional
from headtohead.model.attention import Cache, MultiHeadAttention, Record, View
from headtohead.model.geometry import find_geometry
from headtohead.model.layers import (
    FeedForward,
    Generators,
    StackedEmbedding,
    StackedLayerNorm,
    StackedLinear,
    apply_dropout,
)
from headtohead.model.sizes import Sizes, find_sizes

Observe = Callable[[str, int, str, Tensor], None]
"""Receives role, layer, name and value of intermediate tensors on the explicit path."""


def member_generator(seed: int, purpose: str) -> torch.Generator:
    """Return the generator of one run for one purpose; no two purposes share a stream."""
    digest = hashlib.sha256(f"{purpose}/{seed}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


class Branch(nn.Module):
    """A residual branch: normalisation before or after, dropout on what the branch adds."""

    def __init__(
        self, members: int, config: RunConfig, dropout: float, device: torch.device
    ) -> None:
        super().__init__()
        self.norm = StackedLayerNorm(members, config.model.d_model, config.model.norm_eps, device)
        self.pre = config.model.norm == "pre"
        self.dropout = dropout

    def forward(self, x: Tensor, inner: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + apply_dropout(inner(self.norm(x)), self.dropout, self.training)
        return self.norm(x + apply_dropout(inner(x), self.dropout, self.training))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each a residual branch."""

    def __init__(self, build: _Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("encoder", layer)
        self.attention_branch = build.branch()
        self.feed_forward = build.feed_forward()
        self.feed_forward_branch = build.branch()

    def forward(self, x: Tensor, view: View, record: Record | None) -> Tensor:
        x = self.attention_branch(x, lambda h: self.attention.attend(h, None, view, None, record))
        return self.feed_forward_branch(x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, feed-forward, each a residual branch."""

    def __init__(self, build: _Builder, layer: int) -> None:
        super().__init__()
        self.attention = build.attention("decoder", layer)
        self.attention_branch = build.branch()
        self.cross = build.attention("cross", layer)
        self.cross_branch = build.branch()
        self.feed_forward = build.feed_forward()
        self.feed_forward_branch = build.branch()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        views: tuple[View, View],
        caches: tuple[Cache | None, Cache | None] = (None, None),
        records: tuple[Record | None, Record | None] = (None, None),
    ) -> Tensor:
        own, cross = views
        x = self.attention_branch(
            x, lambda h: self.attention.attend(h, None, own, caches[0], records[0])
        )
        x = self.cross_branch(
            x, lambda h: self.cross.attend(h, memory, cross, caches[1], records[1])
        )
        return self.feed_forward_branch(x, self.feed_forward)  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """The encoder-decoder of Vaswani et al. 2017, section 3, for all members of a stack at once.

    Args:
        config: The variant.
        seeds: One per member; None builds a single member of shapes without numbers.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.

    Raises:
        HeadToHeadError: If the configuration names an unknown entry or its numbers do not fit.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int] | None,
        source_words: int,
        target_words: int,
    ) -> None:
        super().__init__()
        self.config = config
        build = _Builder(config, seeds)
        model = config.model
        self.members = len(build.generators)
        self.sizes = build.sizes
        self.positionals = nn.ModuleDict({role: build.positional(role) for role in ROLES})
        build.positionals = self.positionals
        init = model.init
        self.source_embedding = (
            None
            if model.tied == "all"
            else StackedEmbedding(build.generators, source_words, model.d_model, init)
        )
        self.target_embedding = StackedEmbedding(
            build.generators, target_words, model.d_model, init
        )
        self.encoder = nn.ModuleList(
            EncoderLayer(build, layer) for layer in range(self.sizes.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(build, layer) for layer in range(self.sizes.decoder_layers)
        )
        self.encoder_norm = build.norm() if self.sizes.final_norm else None
        self.decoder_norm = build.norm() if self.sizes.final_norm else None
        self.words = (
            StackedLinear(build.generators, model.d_model, [target_words], model.bias, init)
            if model.tied == "none"
            else None
        )
        registry = plugins.current()
        self.maskings: dict[str, Masking] = {}
        for role in ROLES:
            chosen = config.masking.role(role)
            masking = registry.masking(chosen.name)
            self.maskings[role] = masking(masking.Options.model_validate(chosen.options))
        self.embedding_scale = (
            model.d_model**0.5 if model.embedding_scale == "sqrt-d_model" else None
        )
        self._ranges: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}
        self._casts: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def paths(self) -> dict[str, str]:
        """``"fused"`` or ``"explicit"`` for each role, as training takes it."""
        encoder, decoder = self.encoder[0], self.decoder[0]
        assert isinstance(encoder, EncoderLayer)
        assert isinstance(decoder, DecoderLayer)
        return {
            "encoder": encoder.attention.path,
            "decoder": decoder.attention.path,
            "cross": decoder.cross.path,
        }

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Return logits ``[member, batch, time, vocab]`` of the next token after each target token.

        Args:
            source: Ids ``[member, batch, source time]``, padding on the right.
            source_lengths: Live tokens, ``[member, batch]``.
            target: Ids ``[member, batch, target time]``, starting with <sos>.
            target_lengths: Live tokens, ``[member, batch]``.
        """
        return self.project(self.hidden(source, source_lengths, target, target_lengths))

    def hidden(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Return what ``forward`` projects to words, ``[member, batch, time, d_model]``."""
        memory = self.encode(source, source_lengths)
        return self.decode(target, target_lengths, memory, source_lengths)

    def encode(self, source: Tensor, lengths: Tensor, observe: Observe | None = None) -> Tensor:
        """Return the encoder's output, ``[member, batch, time, d_model]``."""
        time = source.shape[-1]
        view = self._view("encoder", (0, time), (0, time), lengths)
        embedding = self.source_embedding or self.target_embedding
        x = self._embed(source, embedding, "encoder", 0)
        for index, layer in enumerate(self.encoder):
            x = layer(x, view, _recorder(observe, "encoder", index))
        if self.encoder_norm is not None:
            x = self.encoder_norm(x)
        return x.view(*source.shape, -1)

    def decode(
        self,
        target: Tensor,
        lengths: Tensor,
        memory: Tensor,
        memory_lengths: Tensor,
        observe: Observe | None = None,
    ) -> Tensor:
        """Return the decoder's output, ``[member, batch, time, d_model]``."""
        time, source_time = target.shape[-1], memory.shape[2]
        own = self._view("decoder", (0, time), (0, time), lengths)
        cross = self._view("cross", (0, time), (0, source_time), memory_lengths)
        x = self._embed(target, self.target_embedding, "decoder", 0)
        memory = memory.flatten(1, 2)
        for index, layer in enumerate(self.decoder):
            records = (
                _recorder(observe, "decoder", index),
                _recorder(observe, "cross", index),
            )
            x = layer(x, memory, (own, cross), records=records)
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
        return x.view(*target.shape, -1)

    def step(
        self,
        token: Tensor,
        position: int,
        memory: Tensor,
        memory_lengths: Tensor,
        caches: Sequence[tuple[Cache, Cache]],
    ) -> Tensor:
        """Return the decoder's output for one new token ``[member, batch, 1]`` after the cached."""
        live = torch.full_like(memory_lengths, position + 1)
        own = self._view("decoder", (position, 1), (0, position + 1), live)
        cross = self._view("cross", (position, 1), (0, memory.shape[2]), memory_lengths)
        x = self._embed(token, self.target_embedding, "decoder", position)
        source_time, memory = memory.shape[2], memory.flatten(1, 2)
        for layer, pair in zip(self.decoder, caches, strict=True):
            x = layer(x, memory, (own, cross), pair)
            pair[1].filled = source_time
        if self.decoder_norm is not None:
            x = self.decoder_norm(x)
        return x.view(*token.shape, -1)

    def caches(self, memory: Tensor, length: int) -> list[tuple[Cache, Cache]]:
        """Return empty caches for up to ``length`` target tokens over ``memory``."""
        return [
            (
                self._cache(memory, layer.attention, length),
                self._cache(memory, layer.cross, memory.shape[2]),
            )
            for layer in self.decoder
            if isinstance(layer, DecoderLayer)
        ]

    @staticmethod
    def _cache(memory: Tensor, attention: MultiHeadAttention, length: int) -> Cache:
        geometry = attention.context.geometry
        shape = (*memory.shape[:2], geometry.kv_heads, length)
        return Cache(
            memory.new_zeros(*shape, geometry.key_width),
            memory.new_zeros(*shape, geometry.value_width),
        )

    def project(self, x: Tensor) -> Tensor:
        """Return logits over the target vocabulary, ``[member, batch, time, vocab]``."""
        flat = x.flatten(1, 2)
        if self.words is not None:
            logits: Tensor = self.words(flat)
        else:
            logits = torch.bmm(flat, self.target_embedding.weight.transpose(1, 2))
        return logits.view(*x.shape[:3], -1)

    def _embed(self, ids: Tensor, embedding: StackedEmbedding, role: str, start: int) -> Tensor:
        x: Tensor = embedding(ids)
        if self.embedding_scale is not None:
            x = x * self.embedding_scale
        positional = self.positionals[role]
        assert isinstance(positional, Positional)
        places = positional.embed(self._positions(start, ids.shape[-1], ids.device)[1], role)
        if places is not None:
            x = x + self._cast(places, x.dtype)
        return apply_dropout(x.flatten(1, 2), self.sizes.dropout_embedding, self.training)

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

    def _positions(self, start: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return a range of positions as ``[time]`` and ``[1, time]``, the same objects always."""
        key = (start, count, device)
        if key not in self._ranges:
            places = torch.arange(start, start + count, device=device)
            self._ranges[key] = (places, places.unsqueeze(0))
        return self._ranges[key]

    def _view(
        self, role: str, queries: tuple[int, int], keys: tuple[int, int], lengths: Tensor
    ) -> View:
        query_places, query_positions = self._positions(*queries, lengths.device)
        key_places, key_positions = self._positions(*keys, lengths.device)
        keep = self.maskings[role].keep(role, query_places, key_places, lengths.flatten())
        if keep is not None:
            if len(keep) == 1:
                keep = keep[None, :, None]
            else:
                keep = keep.view(*lengths.shape, 1, *keep.shape[1:])
        return View(query_positions, key_positions, keep)


class _Builder:
    """Makes the parts of one model, drawing every parameter from its member's generator."""

    def __init__(self, config: RunConfig, seeds: Sequence[int] | None) -> None:
        self.config = config
        self.sizes: Sizes = find_sizes(config.model)
        self.generators: Generators = (
            [None] if seeds is None else [member_generator(seed, "init") for seed in seeds]
        )
        self.device = torch.device("meta" if seeds is None else "cpu")
        self.positionals: nn.ModuleDict
        self.registry = plugins.current()

    def _context(self, role: str, layer: int | None) -> BuildContext:
        layers = self.sizes.encoder_layers if role == "encoder" else self.sizes.decoder_layers
        return BuildContext(
            role=role,
            layers=layers,
            d_model=self.config.model.d_model,
            geometry=find_geometry(self.config, role),
            generators=self.generators,
            layer=layer,
        )

    def positional(self, role: str) -> Positional:
        chosen = self.config.positional.role(role)
        entry = self.registry.positional(chosen.name)
        return entry(entry.Options.model_validate(chosen.options), self._context(role, None))

    def attention(self, role: str, layer: int) -> MultiHeadAttention:
        chosen = self.config.attention.role(role)
        entry = self.registry.attention(chosen.name)
        context = self._context(role, layer)
        style = entry(entry.Options.model_validate(chosen.options), context)
        positional = self.positionals[role]
        assert isinstance(positional, Positional)
        return MultiHeadAttention(
            context, style, positional, self.config.model.fill,
            self.sizes.dropout_attention, self.config.model.bias, self.config.model.init,
        )  # fmt: skip

    def feed_forward(self) -> FeedForward:
        model = self.config.model
        return FeedForward(
            self.generators, model.d_model, model.d_ff, model.bias, model.init,
            model.activation, self.sizes.dropout_ffn,
        )  # fmt: skip

    def norm(self) -> StackedLayerNorm:
        model = self.config.model
        return StackedLayerNorm(len(self.generators), model.d_model, model.norm_eps, self.device)

    def branch(self) -> Branch:
        return Branch(len(self.generators), self.config, self.sizes.dropout_residual, self.device)


def _recorder(observe: Observe | None, role: str, layer: int) -> Record | None:
    if observe is None:
        return None
    return lambda name, value: observe(role, layer, name, value)
