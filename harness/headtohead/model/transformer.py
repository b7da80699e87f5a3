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
from headtohead.model.layers import Record, SharedModule, StackedEmbedding
from headtohead.model.members import (
    PerLayerMasking,
    PerMemberPositional,
    member_and_batch_sizes,
    require_mask,
)
from headtohead.model.quirks import quirks_of
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import require_like, require_shape
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import calling
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
        HeadToHeadError: If the configuration has an unknown entry or inconsistent sizes, an encoding and a style are
            incompatible, a plugin fails while it is constructed or changes the model, or `require_members` refuses a
            component.
    """

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int] | None,
        source_words: int,
        target_words: int,
        configs: Sequence[RunConfig] | None = None,
    ) -> None:
        """Build all parts for all members.

        A `HeadToHeadError` if an entry is unknown or does not fit the model or another entry, or a plugin fails.
        """
        super().__init__()
        self.config = config
        if configs is None:
            configs = [config] * (1 if seeds is None else len(seeds))
        build = Builder(configs, seeds)
        model = config.model
        self.members = len(build.generators)
        self.vocab_sizes = build.vocab_sizes = vocab_sizes(build.config, source_words, target_words)
        """Rows of the embedding tables, and the number of logits: at least the vocabulary sizes."""
        self.attends_to_source = build.key_sides["cross"] == "source"
        """Whether cross-attention attends to the encoder's output, not to the decoder itself."""
        self.roles = config.roles
        self._build_parts(build)
        self.maskings: dict[str, Masking] = {role: build.masking(role) for role in self.roles}
        self.dropout_rng = build.dropout_rng
        """Random numbers of dropout; training sets the step."""
        self.dropout = build.dropout("embedding")
        self.embedding_scale: float | None = None
        if model.embedding_scale == "sqrt-d_model":
            self.embedding_scale = model.d_model**0.5
        self._row_indexed = {role for role in self.roles if self.positional(role).by_row}
        self.microbatch: tuple[int, int] | None = None
        """First row of a microbatch and rows of its whole batch, for which positions are sampled."""
        self._sampled: dict[str, Tensor | None] = {}
        self.bounds = {role: list(build.bounds(role)) for role in self.roles}
        """Maximum lengths of the entries of each role, checked by ``encode`` and ``decode``."""
        self._ranges: dict[tuple[int, int, torch.device], Range] = {}
        for quirk in quirks_of(build.config):
            with calling(type(quirk)):
                quirk.change_model(self, build)

    def _build_parts(self, build: Builder) -> None:
        """Build the parts with parameters; their order is the order in which their initial values are drawn.

        Raises:
            HeadToHeadError: If an entry is unknown, a plugin fails in its constructor, or `require_members` refuses a
                component.
            UndefinedError: If an encoding and a style are incompatible.
        """
        self.positionals = nn.ModuleDict({role: build.positional(role) for role in self.roles})
        build.positionals = self.positionals
        self.source_embedding = build.source_embedding()
        self.target_embedding = build.embedding(self.vocab_sizes.target)
        for name in self.config.model.shared_modules:
            build.share(name)
        self.shared = nn.ModuleDict(build.shared)
        encoder_layers = build.num_layers.get("encoder", 0)
        self.encoder = nn.ModuleList(EncoderLayer(build, layer) for layer in range(encoder_layers))
        decoder_layers = build.num_layers["decoder"]
        self.decoder = nn.ModuleList(DecoderLayer(build, layer) for layer in range(decoder_layers))
        self.encoder_norm = build.final_norm("encoder")
        self.decoder_norm = build.final_norm("decoder")
        self.lm_head = build.lm_head()

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
        for role in self.roles:
            if "draw" in self.positional(role).mechanisms:
                return "its encoding samples positions"
        return ""

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
        The gradient reaches all parameters, whose first dimension is ``member`` too. A decoder-only model reads each
        source followed by its target; the maximum length then holds for both together.

        Args:
            source: Token ids ``[member, batch, source time]``, padding last; ``[member, batch, 0]`` without sources.
            source_lengths: Tokens without padding, ``[member, batch]``.
            target: Decoder input ids ``[member, batch, target time]``, padding last. They start with <sos> if the
                targets have one, and are zeros in non-autoregressive decoding.
            target_lengths: Tokens without padding, ``[member, batch]``.

        Raises:
            HeadToHeadError: If a sequence is longer than the maximum length of a positional encoding or an attention,
                or the batch has more rows than the maximum of an encoding that counts rows; and if a plugin returns a
                tensor of a wrong shape. Other errors of a plugin pass unchanged.
        """
        batch = self.batch_of(source, source_lengths, target, target_lengths)
        return self.project(self.hidden(batch))

    def batch_of(
        self, source: Tensor, source_lengths: Tensor, target: Tensor, target_lengths: Tensor
    ) -> Batch:
        """Return the arguments of ``forward`` as a batch; its field ``labels`` holds the target and is not to be used.

        For a decoder-only model, each target follows its source without padding between them, and the padding of both
        is last.
        """
        if "encoder" in self.roles:
            return Batch(source, source_lengths, target, target, target_lengths)
        source_time = source.shape[-1]
        time = source_time + target.shape[-1]
        starts = source_lengths.unsqueeze(-1)
        positions = torch.arange(time, device=source.device).expand(*starts.shape[:-1], -1)
        index = torch.where(positions < starts, positions, positions - starts + source_time)
        joined = torch.cat([source, target], dim=-1).gather(-1, index.clamp(max=time - 1))
        return Batch(joined, source_lengths + target_lengths, target, target, target_lengths)

    def hidden(self, batch: Batch, observe: Observe | None = None) -> Tensor:
        """Return the decoder's output at target positions, ``[member, batch, target time, d_model]``, for ``project``.

        Args:
            batch: From `batch_of` or a split; its labels are not read.
            observe: Receives every intermediate result, or None.

        Raises:
            HeadToHeadError: If a sequence or the batch exceeds the maximum of an encoding or an attention, or a plugin
                returns a tensor of a wrong shape.
        """
        if "encoder" in self.roles:
            memory = self.encode(batch.source, batch.source_lengths, observe)
            return self.decode(
                batch.decoder_input_ids, batch.target_lengths, memory, batch.source_lengths, observe
            )
        hidden = self.decode(batch.source, batch.source_lengths, observe=observe)
        target_positions = torch.arange(batch.decoder_input_ids.shape[-1], device=hidden.device)
        prompt_lengths = batch.source_lengths - batch.target_lengths
        positions = target_positions + prompt_lengths.unsqueeze(-1)
        index = positions.clamp(max=hidden.shape[2] - 1).unsqueeze(-1)
        return hidden.gather(2, index.expand(-1, -1, -1, hidden.shape[-1]))

    def prompts(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the ids ``[member, batch, time]`` and lengths ``[member, batch]`` of the sources of a batch."""
        if "encoder" in self.roles:
            return batch.source, batch.source_lengths
        lengths = batch.source_lengths - batch.target_lengths
        return batch.source[:, :, : int(lengths.max())], lengths

    def encode(self, source: Tensor, lengths: Tensor, observe: Observe | None = None) -> Tensor:
        """Return the encoder's output, ``[member, batch, time, d_model]``; the model must have an encoder.

        Args:
            source: Token ids ``[member, batch, time]``, padding last.
            lengths: Tokens without padding, ``[member, batch]``.
            observe: Receives every intermediate result, or None.

        Raises:
            HeadToHeadError: If a sequence or the batch exceeds the maximum of an encoding or an attention, or a plugin
                returns a tensor of a wrong shape.
        """
        time = source.shape[-1]
        self._check("encoder", source.shape[1], time)
        sampled = self._sample_positions("encoder", source)
        span = Span(0, time)
        contexts = self._attention_contexts("encoder", span, span, lengths, sampled, source)
        embedding = self.source_embedding or self.target_embedding
        x = self._embed(source, embedding, "encoder", 0, observe, sampled)
        first_values = None
        for index, layer in enumerate(self.encoder):
            record = _recorder(observe, "encoder", index)
            context = contexts[index % len(contexts)]
            x, first_values = layer(x, context, record, first_values)
        return self._finish(x, self.encoder_norm, "encoder", source, observe)

    def decode(
        self,
        target: Tensor,
        lengths: Tensor,
        memory: Tensor | None = None,
        memory_lengths: Tensor | None = None,
        observe: Observe | None = None,
    ) -> Tensor:
        """Return the decoder's output for whole sequences, ``[member, batch, time, d_model]``; `step` uses caches.

        Args:
            target: Token ids that the decoder reads, ``[member, batch, time]``, padding last.
            lengths: Tokens without padding, ``[member, batch]``.
            memory: The encoder's output, ``[member, batch, source time, d_model]``. If it or its lengths are None, all
                cross-attention is skipped, as in a decoder-only model; a model with an encoder does not refuse that.
            memory_lengths: Source tokens without padding, ``[member, batch]``; None without ``memory``.
            observe: Receives every intermediate result, or None.

        Raises:
            HeadToHeadError: If a sequence or the batch exceeds the maximum of an encoding or an attention, or a plugin
                returns a tensor of a wrong shape.
        """
        span = Span(0, target.shape[-1])
        self._check("decoder", target.shape[1], span.length)
        sampled = self._sample_positions("decoder", target)
        self_contexts = self._attention_contexts("decoder", span, span, lengths, sampled, target)
        cross_contexts = None
        source_tokens = None
        if memory is not None and memory_lengths is not None:
            cross_contexts = self._cross_contexts(span, lengths, memory, memory_lengths)
            source_tokens = memory.flatten(1, 2)  # [member, tokens, d_model], as between layers
        x = self._embed(target, self.target_embedding, "decoder", 0, observe, sampled)
        no_caches = (None, None)
        first_values: FirstValues = (None, None)
        for index, layer in enumerate(self.decoder):
            records = _recorder(observe, "decoder", index), _recorder(observe, "cross", index)
            contexts = _of_layer(self_contexts, cross_contexts, index)
            x, first_values = layer(x, source_tokens, contexts, no_caches, records, first_values)
        return self._finish(x, self.decoder_norm, "decoder", target, observe)

    @staticmethod
    def _finish(
        x: Tensor,
        norm: nn.Module | SharedModule | None,
        role: str,
        ids: Tensor,
        observe: Observe | None = None,
    ) -> Tensor:
        """Return the output of the last layer after the final norm, if any, ``[member, batch, time, d_model]``.

        Args:
            x: ``[member, tokens, d_model]``.
            norm: The final norm, or None.
            role: The role, for ``observe``.
            ids: The ids ``[member, batch, time]``, for the shape of the result.
            observe: Receives ``final_norm``, or None.

        Raises:
            HeadToHeadError: If a norm of a plugin returns a tensor of a wrong shape or type.
        """
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
            caches: As ``caches`` returns them; the keys and values of the tokens are appended to them.

        Returns:
            ``[member, batch, time, d_model]``.

        Raises:
            HeadToHeadError: If the tokens so far exceed the maximum of an entry, or a plugin returns a tensor of a
                wrong shape.
        """
        rows = tokens.shape[1]
        length = position + tokens.shape[-1]
        self._check("decoder", rows, length)
        # All rows have the same length, so they share a mask.
        lengths = memory_lengths.new_full((1,), length)
        queries = Span(position, tokens.shape[-1])
        self_contexts = self._step_contexts("decoder", queries, Span(0, length), lengths, tokens)
        cross_contexts = None
        if memory is not None:
            keys = memory.shape[2] if self.attends_to_source else length
            self._check("cross", rows, max(length, keys))
            key_lengths = memory_lengths if self.attends_to_source else lengths
            query = Span(position, 1)
            cross_contexts = self._step_contexts("cross", query, Span(0, keys), key_lengths)
            memory = memory.flatten(1, 2)
        first_cache, _ = caches[0]
        x = self._embed(tokens, self.target_embedding, "decoder", position, cache=first_cache)
        first_values: FirstValues = (None, None)
        for index, layer in enumerate(self.decoder):
            contexts = _of_layer(self_contexts, cross_contexts, index)
            x, first_values = layer(x, memory, contexts, caches[index], first_values=first_values)
        return self._finish(x, self.decoder_norm, "decoder", tokens)

    def _step_contexts(
        self,
        role: str,
        queries: Span,
        keys: Span,
        lengths: Tensor,
        ids: Tensor | None = None,
    ) -> list[AttentionContext]:
        """Return the contexts of a decoding step, with the arguments and the result of `_attention_contexts`.

        So it is one context for all layers unless maskings alternate. On a CPU, a mask that is True everywhere becomes
        None, which is faster.

        Raises:
            HeadToHeadError: If a masking returns no boolean tensor of the right shape.
        """
        contexts = self._attention_contexts(role, queries, keys, lengths, ids=ids)
        for index, context in enumerate(contexts):
            mask = context.mask
            # On CUDA, the test would wait for the device.
            if mask is not None and not on_cuda(mask) and bool(mask.all()):
                contexts[index] = replace(context, mask=None)
        return contexts

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
        weight, bias = output_map or self.output_map
        logits = product(x.flatten(1, 2), weight, bias).view(*x.shape[:3], -1)
        cap = self.config.model.logit_softcap
        if cap is None:
            return logits
        return torch.tanh(logits / cap) * cap

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

    def owned_parameters(self) -> list[tuple[str, nn.Parameter, tuple[int, ...]]]:
        """Return each parameter with its name and the members along its first axis."""
        owned = []
        for name, parameter in self.named_parameters():
            owned.append((name, parameter, self._owner(name)[1]))
        return owned

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
        """Return the input of the first layer, ``[member, tokens, d_model]`` with batch · time tokens.

        Args:
            ids: ``[member, batch, time]``.
            embedding: The table of the ids.
            role: ``"encoder"`` or ``"decoder"``.
            start: Position of the first token. Ignored with sampled positions, and by an encoding by row, whose
                positions are the batch rows.
            observe: Receives the steps before dropout.
            sampled: Sampled positions, ``[member · batch, time]``, or None.
            cache: Cache of the first layer in a decoding step, changed in place by a style that mixes embeddings.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        record = _recorder(observe, role, None)
        x: Tensor = embedding(ids)
        if record is not None:
            record("embeddings", x.flatten(1, 2))
        if self.embedding_scale is not None:
            x = x * self.embedding_scale
            if record is not None:
                record("scaled", x.flatten(1, 2))
        mixed = self._mixed_embeddings(x, role, cache)
        if mixed is not None:
            x = mixed
            if record is not None:
                record("mixed", x.flatten(1, 2))
        added = self._position_table(x, role, start, sampled)
        if added is not None:
            x = x + added
            if record is not None:
                record("positions", added.expand_as(x).flatten(1, 2))
                record("sum", x.flatten(1, 2))
        dropped: Tensor = self.dropout(x.flatten(1, 2))
        return dropped

    def _mixed_embeddings(self, x: Tensor, role: str, cache: Cache | None) -> Tensor | None:
        """Return the embeddings as the attention style of the first layer changes them, with the shape of ``x``.

        None if the style does not override ``mix_embeddings``, or the role has no layers (the encoder of a decoder-only
        model).

        Args:
            x: Embeddings of the new tokens, ``[member, batch, time, d_model]``.
            role: ``"encoder"`` or ``"decoder"``.
            cache: In a decoding step, the unmixed embeddings of earlier tokens, to which ``x`` is appended; else None.

        Raises:
            HeadToHeadError: If the hook returns a tensor of another shape, or, except under autocast, of another type.
        """
        layers = self.encoder if role == "encoder" else self.decoder
        if not layers:
            return None
        style: Any = layers[0].attention.style  # type: ignore[union-attr]
        if not overrides(style, Attention, "mix_embeddings"):
            return None
        embeddings = x
        if cache is not None:
            embeddings = cache.append("embeddings", x)
        mixed: Tensor = style.mix_embeddings(embeddings)
        require_like(style, "mix_embeddings", mixed, embeddings, "member batch time d_model")
        num_new = x.shape[2]
        return mixed[:, :, -num_new:]

    def _position_table(
        self, x: Tensor, role: str, start: int, sampled: Tensor | None
    ) -> Tensor | None:
        """Return what the encoding of a role adds to embeddings, or None if it adds nothing.

        ``[member or 1, batch or 1, time, d_model]`` in the type of ``x``; with positions by batch row,
        ``[member or 1, batch, 1, d_model]``.

        Args:
            x: Embeddings, ``[member, batch, time, d_model]``.
            role: ``"encoder"`` or ``"decoder"``.
            start: Position of the first token; ignored with sampled positions and with positions by batch row.
            sampled: Sampled positions, or None.

        Raises:
            HeadToHeadError: If the encoding returns a tensor of a wrong shape.
        """
        positional = self.positional(role)
        members, batch, time, width = x.shape
        if sampled is not None:
            positions = sampled
        elif role in self._row_indexed:
            positions = self._positions(0, batch, x.device).column
        else:
            positions = self._positions(start, time, x.device).row
        table = positional.embed(positions, role)
        if table is None:
            return None
        require_shape(
            positional,
            "embed",
            table,
            **member_and_batch_sizes(members, batch, is_sampled=sampled is not None),
            time=positions.shape[1],
            d_model=width,
        )
        if sampled is not None and table.shape[1] > 1:
            return table.view(x.shape).to(x)
        if table.requires_grad or table.dtype == x.dtype:
            return table.to(x.dtype)
        # A table that the encoding caches is converted once.
        converted: Tensor = positional.cached(Tensor.to, table, x.dtype)
        return converted

    def _check(self, role: str, rows: int, length: int) -> None:
        """Check a number of batch rows and of positions against the maximums of the entries of a role.

        Raises:
            HeadToHeadError: If one of them is exceeded.
        """
        for bound in self.bounds[role]:
            bound.check(length, rows)

    def _sample_positions(self, role: str, ids: Tensor) -> Tensor | None:
        """Return the sampled positions of a microbatch of a training step.

        They are sampled for the whole batch when its first microbatch arrives, and kept until its last one; each
        microbatch gets those of its rows. So the microbatches of a batch must come in order and be equally long.

        Args:
            role: A role with an encoding.
            ids: Ids of the microbatch, ``[member, rows, time]``; the whole batch if ``microbatch`` is None.

        Returns:
            ``[member · rows, time]``. None outside training, for an encoding without the hook ``draw``, and if the hook
            returns None.

        Raises:
            HeadToHeadError: If the encoding returns positions of a wrong shape.
            KeyError: If a later microbatch comes without the first one.
        """
        positional = self.positional(role)
        if not self.training or "draw" not in positional.mechanisms:
            return None
        rows, time = ids.shape[1:]
        first, batch = self.microbatch or (0, rows)
        if first == 0:
            drawn = positional.draw(batch, time)
            self._sampled[role] = drawn
            if drawn is not None:
                sizes = {"member": self.members, "batch": batch, "time": time}
                require_shape(positional, "draw", drawn, **sizes)
        end = first + rows
        sampled = self._sampled[role]
        if end >= batch:  # the last microbatch: a step must leave no new tensor behind
            del self._sampled[role]
        if sampled is None:
            return None
        return sampled[:, first:end].flatten(0, 1)

    def _positions(self, start: int, count: int, device: torch.device) -> Range:
        """Return ``count`` positions from ``start``.

        They are always the same tensor objects, as ``Positional.cached`` requires.
        """
        key = (start, count, device)
        if key not in self._ranges:
            positions = torch.arange(count, device=device) + start
            self._ranges[key] = Range(positions, positions.unsqueeze(0), positions.unsqueeze(1))
        return self._ranges[key]

    def _attention_contexts(
        self,
        role: str,
        queries: Span,
        keys: Span,
        lengths: Tensor,
        sampled: Tensor | None = None,
        ids: Tensor | None = None,
    ) -> list[AttentionContext]:
        """Return one context for all layers, or if maskings alternate those of the first layers, which repeat.

        Args:
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            queries: Positions of the queries.
            keys: Positions of the keys.
            lengths: Keys without padding, ``[member, batch]``; ``[1]`` for one length of all rows.
            sampled: Sampled positions of queries and keys, ``[member · batch, time]``; None for the actual ones.
            ids: Ids of the queries' tokens, ``[member, batch, query]``; None in cross-attention.

        Raises:
            HeadToHeadError: If a masking returns no boolean tensor of the right shape.
        """
        query = self._positions(*queries, lengths.device)
        key = self._positions(*keys, lengths.device)
        query_positions, key_positions = query.row, key.row
        if sampled is not None:
            query_positions = key_positions = sampled
        masking = self.maskings[role]
        parts: Sequence[Masking] = [masking]
        if isinstance(masking, PerLayerMasking):
            parts = masking.parts
        contexts = []
        for part in parts:
            mask = part.mask(role, query.positions, key.positions, lengths.flatten())
            if mask is not None:
                rows = (1, self.members, lengths.numel())
                require_mask(part, mask, rows, query.positions, key.positions)
                # [rows, query, key] to [member or 1, batch or 1, 1, query, key]
                members = 1 if len(mask) == 1 else self.members
                mask = mask.view(members, -1, 1, *mask.shape[1:])
            context = AttentionContext(
                query_positions,
                key_positions,
                mask,
                is_sampled=sampled is not None,
                declared=part.role_properties(role) or frozenset(),
                ids=ids,
            )
            contexts.append(context)
        return contexts

    def _cross_contexts(
        self,
        queries: Span,
        lengths: Tensor,
        memory: Tensor,
        memory_lengths: Tensor,
    ) -> list[AttentionContext]:
        """Return the contexts of cross-attention, as `_attention_contexts` does.

        The keys are the encoder's output if `attends_to_source`, else the decoder's own positions.

        Args:
            queries: All positions of the decoder, from 0.
            lengths: Target tokens without padding, ``[member, batch]``.
            memory: The encoder's output, ``[member, batch, time, d_model]``.
            memory_lengths: Source tokens without padding, ``[member, batch]``.

        Raises:
            HeadToHeadError: If queries or keys exceed the maximum length of an entry of cross-attention, the batch has
                too many rows for one, or a masking returns no boolean tensor of the right shape.
        """
        keys = queries
        key_lengths = lengths
        if self.attends_to_source:
            keys = Span(0, memory.shape[2])
            key_lengths = memory_lengths
        self._check("cross", memory.shape[1], max(queries.length, keys.length))
        return self._attention_contexts("cross", queries, keys, key_lengths)


class Span(NamedTuple):
    """Consecutive positions."""

    start: int
    length: int


class Range(NamedTuple):
    """Positions as ``[count]``, ``[1, count]`` and ``[count, 1]``."""

    positions: Tensor
    row: Tensor
    column: Tensor


def _of_layer(
    self_contexts: Sequence[AttentionContext],
    cross_contexts: Sequence[AttentionContext] | None,
    index: int,
) -> tuple[AttentionContext, AttentionContext | None]:
    """Return the contexts of a layer from those of the first layers, which repeat."""
    context = self_contexts[index % len(self_contexts)]
    if cross_contexts is None:
        return context, None
    return context, cross_contexts[index % len(cross_contexts)]


def _recorder(observe: Observe | None, role: str, layer: int | None) -> Record | None:
    if observe is None:
        return None
    return lambda name, value: observe(role, layer, name, value)
