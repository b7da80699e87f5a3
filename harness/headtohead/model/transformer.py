"""The batched Transformer; a single run is a stack with one member."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headtohead.model.aligned import product
from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.model.attention_context import AttentionContext, Cache
from headtohead.model.batch import Batch
from headtohead.model.blocks import DecoderLayer, EncoderLayer, FirstValues
from headtohead.model.builder import Builder
from headtohead.model.cuda import on_cuda
from headtohead.model.geometry import vocab_sizes
from headtohead.model.layers import Record, SharedModule, StackedEmbedding, StackedLinear
from headtohead.model.members import PerLayerMasking, PerMemberPositional, require_mask
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import require_like, require_shape
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.schema.run_config import RunConfig

Observe = Callable[[str, int | None, str, Tensor], None]
"""Receives role, layer, name and value of every intermediate result, on the explicit path.

The layer is None outside layers. Names, in the order of a post-norm model:

- before the layers: ``embeddings``, ``scaled``, ``mixed``, ``positions``, ``sum``; after them: ``final_norm``;
  each only if the model has this step
- in an attention: those of ``MultiHeadAttention.forward``, then ``output``, ``residual``, ``norm``; with
  ``model.norm: sandwich`` also ``post_norm``, after ``output``
- in a feed-forward: ``feed_forward.inner``, ``.activated``, ``.gate`` and ``.gated`` if it is gated, ``.output``,
  ``.residual``, ``.norm``; the feed-forward between the attentions of a decoder layer has the prefix ``between``

Values outside an attention are ``[member, tokens, width]``, with the tokens of a batch concatenated.
"""


class Transformer(nn.Module):
    """The encoder-decoder of Vaswani et al. 2017, section 3, or its decoder alone, for all members of a stack.

    A decoder-only model reads source and target as one sequence: the source, then the target with its <sos>.

    Args:
        config: The variant.
        seeds: A seed per member. None builds a single member on the device ``meta``, with shapes
            and without data.
        source_words: Size of the source vocabulary.
        target_words: Size of the target vocabulary.
        configs: A configuration per member, where they differ in ``MEMBER_FIELDS``,
            encodings or maskings.

    Raises:
        HeadToHeadError: If the configuration has an unknown entry or inconsistent sizes.
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
        self.members = len(build.generators)
        self.vocab_sizes = build.vocab_sizes = vocab_sizes(build.config, source_words, target_words)
        """Rows of the embedding tables, and the number of logits: at least the vocabulary sizes."""
        self.attends_to_source = build.config.quirks.cross_attention_memory == "encoder"
        """Whether cross-attention attends to the encoder's output, not to the decoder itself."""
        self.roles = config.roles
        self.positionals = nn.ModuleDict({role: build.positional(role) for role in self.roles})
        build.positionals = self.positionals
        init = build.init
        self.source_embedding = (
            None
            if model.tie_embeddings in ("all", "embeddings") or "encoder" not in self.roles
            else StackedEmbedding(build.generators, self.vocab_sizes.source, model.d_model, init)
        )
        self.target_embedding = StackedEmbedding(
            build.generators, self.vocab_sizes.target, model.d_model, init
        )
        for name in build.config.quirks.shared_modules:
            build.share(name)
        self.shared = nn.ModuleDict(build.shared)
        self.encoder = nn.ModuleList(
            EncoderLayer(build, layer)
            for layer in range(model.encoder_layers)
            if "encoder" in self.roles
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(build, layer) for layer in range(model.decoder_layers)
        )
        self.encoder_norm = (
            build.norm("encoder", None) if model.final_norm and "encoder" in self.roles else None
        )
        self.decoder_norm = build.norm("decoder", None) if model.final_norm else None
        self.lm_head = (
            StackedLinear(
                build.generators, model.d_model, [self.vocab_sizes.target], model.bias, init
            )
            if model.tie_embeddings in ("none", "embeddings")
            else None
        )
        self.maskings: dict[str, Masking] = {role: build.masking(role) for role in self.roles}
        self.dropout_rng = build.dropout_rng
        """Random numbers of dropout; training sets the step."""
        self.dropout = build.dropout("embedding")
        self.embedding_scale = (
            model.d_model**0.5 if model.embedding_scale == "sqrt-d_model" else None
        )
        encodings = {role: self.positional(role) for role in self.roles}
        self._row_indexed = {role for role, encoding in encodings.items() if encoding.by_row}
        self.microbatch: tuple[int, int] | None = None
        """First row of a microbatch and rows of its whole batch, for which positions are sampled."""
        self._sampled: dict[str, Tensor | None] = {}
        self.bounds = {role: list(build.bounds(role)) for role in self.roles}
        """Maximum lengths of the entries of each role, checked by ``encode`` and ``decode``."""
        self._ranges: dict[tuple[int, int, torch.device], Range] = {}

    def positional(self, role: str) -> Positional:
        """Return the encoding of a role."""
        encoding = self.positionals[role]
        assert isinstance(encoding, Positional)
        return encoding

    @property
    def position_is_row(self) -> bool:
        """Whether the logits of a sentence depend on its row in the batch.

        They then change if a batch is divided, and equal those of the sentence alone only in a
        batch of one sentence.
        """
        return bool(self._row_indexed)

    @property
    def obstacle(self) -> str:
        """Why steps cannot be captured as a graph; empty if they can."""
        draws = any("draw" in self.positional(role).mechanisms for role in self.roles)
        return "its encoding samples positions" if draws else ""

    @property
    def attentions(self) -> list[MultiHeadAttention]:
        """The attentions layer by layer, those of the encoder first."""
        return [part for part in self.modules() if isinstance(part, MultiHeadAttention)]

    @property
    def paths(self) -> dict[str, str]:
        """``"fused"`` or ``"explicit"`` per role: the path of training."""
        return {attention.context.role: attention.path for attention in self.attentions}

    def forward(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Tensor:
        """Return logits ``[member, batch, target time, vocab]`` of the next token after each target token.

        All ids and lengths are integer tensors. ``member`` is 1 in a loaded run, and the number of runs in a stack.
        The gradient reaches all parameters, whose first dimension is ``member`` too.

        Args:
            source: Token ids ``[member, batch, source time]``, padding last.
            source_lengths: Tokens without padding, ``[member, batch]``.
            target: Decoder input ids ``[member, batch, target time]``, starting with <sos>.
            target_lengths: Tokens without padding, ``[member, batch]``.

        Raises:
            HeadToHeadError: If a sequence is longer than the maximum length of an encoding or a masking.
        """
        return self.project(
            self.hidden(self.batch_of(source, source_lengths, target, target_lengths))
        )

    def batch_of(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Batch:
        """Return the arguments of ``forward`` as a batch without labels."""
        if "encoder" not in self.roles:
            time, starts = source.shape[-1] + target.shape[-1], source_lengths.unsqueeze(-1)
            positions = torch.arange(time, device=source.device).expand(*starts.shape[:-1], -1)
            index = torch.where(
                positions < starts, positions, positions - starts + source.shape[-1]
            )
            source = torch.cat([source, target], dim=-1).gather(-1, index.clamp(max=time - 1))
            source_lengths = source_lengths + target_lengths
        return Batch(source, source_lengths, target, target, target_lengths)

    def hidden(self, batch: Batch, observe: Observe | None = None) -> Tensor:
        """Return the decoder's output at target positions, ``[member, batch, time, d_model]``, for ``project``."""
        if "encoder" in self.roles:
            memory = self.encode(batch.source, batch.source_lengths, observe)
            return self.decode(
                batch.decoder_input_ids, batch.target_lengths, memory, batch.source_lengths, observe
            )
        hidden = self.decode(batch.source, batch.source_lengths, observe=observe)
        own = torch.arange(batch.decoder_input_ids.shape[-1], device=hidden.device)
        positions = own + (batch.source_lengths - batch.target_lengths).unsqueeze(-1)
        index = positions.clamp(max=hidden.shape[2] - 1).unsqueeze(-1)
        return hidden.gather(2, index.expand(-1, -1, -1, hidden.shape[-1]))

    def prompts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the ids ``[member, batch, time]`` and lengths ``[member, batch]`` of the sources of a batch."""
        if "encoder" in self.roles:
            return batch.source, batch.source_lengths
        lengths = batch.source_lengths - batch.target_lengths
        return batch.source[:, :, : int(lengths.max())], lengths

    def encode(self, source: Tensor, lengths: Tensor, observe: Observe | None = None) -> Tensor:
        """Return the encoder's output, ``[member, batch, time, d_model]``."""
        time = source.shape[-1]
        self._check("encoder", source.shape[1], time)
        sampled = self._sample_positions("encoder", source)
        ctx = self._attention_context("encoder", (0, time), (0, time), lengths, sampled, source)
        embedding = self.source_embedding or self.target_embedding
        x = self._embed(source, embedding, "encoder", 0, observe, sampled)
        first_values = None
        for index, layer in enumerate(self.encoder):
            record = _recorder(observe, "encoder", index)
            x, first_values = layer(x, ctx[index % len(ctx)], record, first_values)
        return self._finish(x, self.encoder_norm, "encoder", source, observe)

    def decode(
        self,
        target: Tensor,
        lengths: Tensor,
        memory: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        """Return the decoder's output, ``[member, batch, time, d_model]``; a decoder-only model has no memory."""
        span = (0, target.shape[-1])
        self._check("decoder", target.shape[1], span[1])
        sampled = self._sample_positions("decoder", target)
        own = self._attention_context("decoder", span, span, lengths, sampled, target)
        cross = None
        if memory is not None and memory_lengths is not None:
            cross = self._cross_context(span, span[1], lengths, memory, memory_lengths)
            memory = memory.flatten(1, 2)
        x = self._embed(target, self.target_embedding, "decoder", 0, observe, sampled)
        first_values: FirstValues = (None, None)
        for index, layer in enumerate(self.decoder):
            x, first_values = layer(
                x,
                memory,
                (own[index % len(own)], cross and cross[index % len(cross)]),
                records=(_recorder(observe, "decoder", index), _recorder(observe, "cross", index)),
                first_values=first_values,
            )
        return self._finish(x, self.decoder_norm, "decoder", target, observe)

    @staticmethod
    def _finish(
        x: Tensor,
        norm: nn.Module | SharedModule | None,
        role: str,
        ids: Tensor,
        observe: Observe | None = None,
    ) -> Tensor:
        """Apply the final norm, if any, and return ``[member, batch, time, d_model]``."""
        if norm is not None:
            x = norm(x)
            if observe is not None:
                observe(role, None, "final_norm", x)
        return x.view(*ids.shape, -1)

    def step(
        self,
        tokens: Tensor,
        position: int,
        memory: Tensor | None,
        memory_lengths: Tensor,
        caches: Sequence[tuple[Cache, Cache]],
    ) -> Tensor:
        """Return the decoder's output for the next tokens of each row, using cached keys and values.

        Args:
            tokens: Ids ``[member, batch, time]``; several tokens, such as a prompt, without memory only.
            position: Position of the first token, equal in all rows.
            memory: The encoder's output, ``[member, batch, time, d_model]``; None in a decoder-only model.
            memory_lengths: Source tokens without padding, ``[member, batch]``.
            caches: As ``caches`` returns them.

        Returns:
            ``[member, batch, time, d_model]``.
        """
        rows = tokens.shape[1]
        length = position + tokens.shape[-1]
        self._check("decoder", rows, length)
        # All rows have the same length, so they share a mask.
        lengths = memory_lengths.new_full((1,), length)
        own, cross = (
            self._step_context("decoder", position, tokens.shape[-1], (0, length), lengths, tokens),
            None,
        )
        if memory is not None:
            keys = memory.shape[2] if self.attends_to_source else length
            self._check("cross", rows, max(length, keys))
            key_lengths = memory_lengths if self.attends_to_source else lengths
            cross = self._step_context("cross", position, 1, (0, keys), key_lengths)
            memory = memory.flatten(1, 2)
        x = self._embed(
            tokens,
            self.target_embedding,
            "decoder",
            position,
            cache=caches[0][0],
        )
        first_values: FirstValues = (None, None)
        for index, (layer, pair) in enumerate(zip(self.decoder, caches, strict=True)):
            x, first_values = layer(
                x,
                memory,
                (own[index % len(own)], cross and cross[index % len(cross)]),
                pair,
                first_values=first_values,
            )
        return self._finish(x, self.decoder_norm, "decoder", tokens)

    def _step_context(
        self,
        role: str,
        position: int,
        count: int,
        keys: tuple[int, int],
        lengths: Tensor,
        ids: Tensor | None = None,
    ) -> list[AttentionContext]:
        """Return the contexts of ``count`` tokens from a position on; a mask of True becomes None."""
        contexts = self._attention_context(role, (position, count), keys, lengths, ids=ids)
        # On CUDA, the test would wait for the device.
        return [
            replace(ctx, mask=None, declared=frozenset())
            if ctx.mask is not None and not on_cuda(ctx.mask) and bool(ctx.mask.all())
            else ctx
            for ctx in contexts
        ]

    def caches(self) -> list[tuple[Cache, Cache]]:
        """Return empty caches of self-attention and cross-attention per decoder layer."""
        return [(Cache(), Cache()) for _ in self.decoder]

    @property
    def output_map(self) -> tuple[Tensor, Tensor | None]:
        """Weight ``[member, d_model, vocab]`` and bias ``[member, 1, vocab]`` from decoder output to logits.

        With tied embeddings, the weight is a transposed view of the target embedding.
        """
        if self.lm_head is not None:
            return self.lm_head.weight, self.lm_head.bias
        return self.target_embedding.weight.transpose(1, 2), None

    def project(self, x: Tensor, output_map: tuple[Tensor, Tensor | None] | None = None) -> Tensor:
        """Return logits over the target vocabulary, ``[member, batch, time, vocab]``.

        Args:
            x: Decoder output, ``[member, batch, time, d_model]``.
            output_map: Part of `output_map`, for some members; default: all.
        """
        logits = product(x.flatten(1, 2), *(output_map or self.output_map)).view(*x.shape[:3], -1)
        cap = self.config.model.logit_softcap
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def member_state(self, member: int) -> dict[str, Tensor]:
        """Return a member's weights without the member axis, with the names of a stack with one member."""
        return {
            name: value[index].clone()
            for name, value, index in self._of_member(member, self.state_dict())
        }

    @torch.no_grad()
    def load_member(self, member: int, weights: Mapping[str, Tensor]) -> None:
        """Set the weights of a member to those that ``member_state`` returned."""
        for name, value, index in self._of_member(member, self.state_dict()):
            value[index].copy_(weights[name])

    def members_of(self, name: str) -> tuple[int, ...]:
        """Return the members along the first axis of a parameter or buffer."""
        return self._owner(name)[1]

    def _owner(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return the name of a tensor in a stack with one member, and its members."""
        for role, positional in self.positionals.items():
            prefix = f"positionals.{role}.entries."
            if isinstance(positional, PerMemberPositional) and name.startswith(prefix):
                number, _, rest = name.removeprefix(prefix).partition(".")
                return f"positionals.{role}.{rest}", positional.index_of.members[int(number)]
        return name, tuple(range(self.members))

    def _of_member(
        self, member: int, tensors: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, Tensor, int]]:
        """Yield name, tensor and the member's index along its first axis."""
        for name, value in tensors.items():
            plain, members = self._owner(name)
            if member in members:
                yield plain, value, members.index(member)

    def _embed(
        self,
        ids: Tensor,
        embedding: StackedEmbedding,
        role: str,
        start: int,
        observe: Observe | None = None,
        sampled: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        x: Tensor = embedding(ids)
        record = _recorder(observe, role, None)
        if record is not None:
            record("embeddings", x.flatten(1, 2))
        if self.embedding_scale is not None:
            x = x * self.embedding_scale
            if record is not None:
                record("scaled", x.flatten(1, 2))
        first: Any = next(iter(self.encoder if role == "encoder" else self.decoder), None)
        if first is not None and overrides(
            style := first.attention.style, Attention, "mix_embeddings"
        ):
            every = x if cache is None else cache.append("embeddings", x)
            mixed = style.mix_embeddings(every)
            require_like(style, "mix_embeddings", mixed, every, "member batch time d_model")
            x = mixed[:, :, -ids.shape[-1] :]
            if record is not None:
                record("mixed", x.flatten(1, 2))
        positional, by_row = self.positional(role), role in self._row_indexed
        span = (0, ids.shape[1]) if by_row else (start, ids.shape[-1])
        consecutive = self._positions(*span, ids.device)
        positions = (
            sampled if sampled is not None else consecutive.column if by_row else consecutive.row
        )
        table = positional.embed(positions, role)
        if table is not None:
            members = 1 if sampled is not None else (1, len(ids))
            time, width = positions.shape[1], positional.context.d_model
            require_shape(
                positional, "embed", table, member=members, batch=None, time=time, d_model=width
            )
            if sampled is not None:
                added = table.view(x.shape).to(x)
            elif table.requires_grad or table.dtype == x.dtype:
                added = table.to(x.dtype)
            else:  # a table that the encoding caches is converted once
                added = positional.cached(Tensor.to, table, x.dtype)
            x = x + added
            if record is not None:
                record("positions", added.expand_as(x).flatten(1, 2))
                record("sum", x.flatten(1, 2))
        dropped: Tensor = self.dropout(x.flatten(1, 2))
        return dropped

    def _check(self, role: str, rows: int, length: int) -> None:
        for bound in self.bounds[role]:
            bound.check(length, rows)

    def _sample_positions(self, role: str, ids: Tensor) -> Tensor | None:
        """Return sampled positions ``[member · batch, time]``; None for an encoding without."""
        positional = self.positional(role)
        if not self.training or "draw" not in positional.mechanisms:
            return None
        rows, time = ids.shape[1:]
        first, batch = self.microbatch or (0, rows)
        if first == 0:
            drawn = self._sampled[role] = positional.draw(batch, time)
            if drawn is not None:
                require_shape(
                    positional, "draw", drawn, member=self.members, batch=batch, time=time
                )
        # The last microbatch frees the positions: a step must leave no new tensor behind.
        sampled = self._sampled[role] if first + rows < batch else self._sampled.pop(role)
        return None if sampled is None else sampled[:, first : first + rows].flatten(0, 1)

    def _positions(self, start: int, count: int, device: torch.device) -> Range:
        """Return ``count`` positions from ``start``.

        They are always the same tensor objects, as ``Positional.cached`` requires.
        """
        key = (start, count, device)
        if key not in self._ranges:
            positions = torch.arange(count, device=device) + start
            self._ranges[key] = Range(positions, positions.unsqueeze(0), positions.unsqueeze(1))
        return self._ranges[key]

    def _attention_context(
        self,
        role: str,
        queries: tuple[int, int],
        keys: tuple[int, int],
        lengths: Tensor,
        sampled: Tensor | None = None,
        ids: Tensor | None = None,
    ) -> list[AttentionContext]:
        """Return the context of all layers, or those of the first layers if maskings alternate."""
        query, key = (self._positions(*span, lengths.device) for span in (queries, keys))
        masking = self.maskings[role]
        contexts = []
        for part in masking.parts if isinstance(masking, PerLayerMasking) else (masking,):
            mask = part.mask(role, query.positions, key.positions, lengths.flatten())
            if mask is not None:
                rows = (1, self.members, lengths.numel())
                require_mask(part, mask, rows, query.positions, key.positions)
                mask = (
                    mask[None, :, None]
                    if len(mask) == 1
                    else mask.view(self.members, -1, 1, *mask.shape[1:])
                )
            declared = part.role_properties(role) or frozenset()
            at = (query.row, key.row) if sampled is None else (sampled, sampled)
            is_sampled = sampled is not None
            contexts.append(AttentionContext(*at, mask, is_sampled, declared, ids))
        return contexts

    def _cross_context(
        self,
        queries: tuple[int, int],
        length: int,
        lengths: Tensor,
        memory: Tensor,
        memory_lengths: Tensor,
    ) -> list[AttentionContext]:
        keys = memory.shape[2] if self.attends_to_source else length
        self._check("cross", memory.shape[1], max(length, keys))
        key_lengths = memory_lengths if self.attends_to_source else lengths
        return self._attention_context("cross", queries, (0, keys), key_lengths)


class Range(NamedTuple):
    """Positions as ``[count]``, ``[1, count]`` and ``[count, 1]``."""

    positions: Tensor
    row: Tensor
    column: Tensor


def _recorder(observe: Observe | None, role: str, layer: int | None) -> Record | None:
    if observe is None:
        return None
    return lambda name, value: observe(role, layer, name, value)
