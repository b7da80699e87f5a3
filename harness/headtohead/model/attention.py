"""Multi-head attention with a fused and an explicit path, which give equal results.

Both compute ``mix(normalise(mask(mix_scores(scores + score + bias)))) · v + values``, where scores
are ``scale · qkᵀ`` unless the style overrides them (Vaswani et al. 2017, section 3.2, extended by
the hooks of variants). The fused path uses ``scaled_dot_product_attention``. The explicit path
computes the weights and can record them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from headtohead.errors import HeadToHeadError, UndefinedError
from headtohead.model.attention_context import AttentionContext, Cache, any_or_unknown
from headtohead.model.cuda import aligned_mask, attention_kernel, kernel_dtype, on_cuda
from headtohead.model.dropout import Dropout
from headtohead.model.geometry import incompatibility
from headtohead.model.layers import (
    Init,
    Record,
    SharedModule,
    StackedLinear,
    TokenMixing,
    unshared,
)
from headtohead.model.members import MaskValue, PerMemberMaskValue, member_and_batch_sizes
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import require_like, require_members, require_shape
from headtohead.plugins.positional import Positional

MAX_SHORT_SCORES = 24 * 24
"""Query length times key length up to which two batched products are faster on a CPU."""

MAX_SHORT_SCORES_BFLOAT16 = 512 * 512
"""The same in bfloat16, for any number of heads: the fused kernel takes up to 16 times as long as two products."""

MIN_KEYS_LAST = 32
"""Number of keys from which, in bfloat16 on a CPU, softmax is fastest along the last axis (benchmarks/results.md)."""

MIN_SHORT_HEADS = 64
"""Number of heads, over members and batch, from which two batched products are faster.

Up to 2.1 times as fast as the fused kernel, forward and backward (benchmarks/results.md).
"""


def overrides(part: nn.Module, base: type, name: str) -> bool:
    """Return whether a plugin's class overrides a method of its family's base class."""
    return getattr(type(part), name) is not getattr(base, name)


class MultiHeadAttention(nn.Module):
    """The attention of a layer and role, for all members of a stack.

    Args:
        style: The attention style. Its context has sizes, role and generators.
        positional: The encoding of the role, shared by its layers.
        mask_value: ``"-inf"``, ``"-1e9"`` (replaces masked scores) or ``"additive"`` (subtracts
            1e9 from masked scores).
        dropout: Dropout of the attention weights.
        bias: Whether the projections have biases.
        init: Initialisation of the projections.
        is_self_attention: Whether keys and values are computed from the inputs, not from a memory.

    Raises:
        UndefinedError: If the style does not support a mechanism of the encoding.
    """

    def __init__(
        self,
        style: Attention,
        positional: Positional,
        mask_value: MaskValue,
        dropout: Dropout,
        bias: bool,
        init: Init,
        is_self_attention: bool,
    ) -> None:
        """Create the projections and choose the path; an `UndefinedError` if encoding and style are incompatible."""
        super().__init__()
        context = style.context
        for encoding in positional.parts:
            reason = incompatibility(
                type(encoding), encoding.mechanisms, type(style), context.geometry, context.role
            )
            if reason:
                raise UndefinedError(reason)
        self.context = context
        self.style = style
        # In a tuple, so that the encoding is registered with the model and not with each layer.
        self._shared = (positional,)
        self.mask_value = mask_value
        self.dropout = dropout
        self.is_self_attention = is_self_attention
        self._joined = context.geometry.output_heads * context.geometry.value_width
        """Width of the concatenated heads."""
        self._mechanisms = positional.mechanisms
        self._overridden = {name for name in Attention.hooks if overrides(style, Attention, name)}
        if style.projects:
            self._create_projections(bias, init)
        self.has_fast_path = self._allows_fast_path()
        """Whether training calls the style's ``fast_path`` instead of the fused path."""
        self._needs_inputs = is_self_attention and (
            "mix_tokens" in self._overridden or "content_bias" in self._mechanisms
        )
        self.path = self._choose_path()
        """``"fused"``, or ``"explicit"`` if the variant requires the weights."""

    def _create_projections(self, bias: bool, init: Init) -> None:
        """Create the projections; their order is the order in which their initial values are drawn.

        Self-attention has a joint projection, unless the style overrides ``project`` and so has its own.
        Cross-attention projects queries and memory separately, and has no projection of queries if their width is 0.
        Each has an output projection. An override of ``project`` is not used in cross-attention.

        Args:
            bias: Whether the projections have biases.
            init: Their initialisation.
        """
        geometry = self.context.geometry
        generators = self.context.generators
        d_model = self.context.d_model
        q = geometry.heads * geometry.key_width
        k = geometry.kv_heads * geometry.key_width
        v = geometry.value_heads * geometry.value_width
        self._widths = [q, k, v]
        if not self.is_self_attention:
            if q:
                self.queries = StackedLinear(generators, d_model, [q], bias, init)
            self.keys_values = StackedLinear(generators, d_model, [k, v], bias, init)
        elif "project" not in self._overridden:
            self.queries_keys_values = StackedLinear(generators, d_model, [q, k, v], bias, init)
        self.output = StackedLinear(generators, self._joined, [d_model], bias, init)

    def _allows_fast_path(self) -> bool:
        """Return whether the style has a fast path that computes all that the encoding and dropout require."""
        if "fast_path" not in self._overridden:
            return False
        if self._mechanisms & {"bias", "content_bias", "score", "values"}:
            return False
        # Dropout acts on weights, which a fast path does not compute.
        return not self.dropout.rate

    def _choose_path(self) -> str:
        """Return the path of training: ``"explicit"`` if it requires the weights, else ``"fused"``.

        Weights are required by a style without projections or with an override of scores or weights, and by an encoding
        that changes scores or values. The fast path of a style counts as fused, also with such a style.
        ``has_fast_path`` is already set; it is false with such an encoding.
        """
        needs_weights = (
            not self.style.projects
            or self._overridden & {"scores", "mix_scores", "normalise", "mix"}
            or self._mechanisms & {"score", "values"}
        )
        if needs_weights and not self.has_fast_path:
            return "explicit"
        return "fused"

    @property
    def positional(self) -> Positional:
        """The encoding of the role."""
        return self._shared[0]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        ctx: AttentionContext,
        cache: Cache | None = None,
        record: Record | None = None,
        first_values: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output of attention to ``x``, or to ``memory`` in the role cross, and the first values.

        The first values are the projected values of the first layer of the role whose style has ``mix_values``. Each
        layer passes them to the next.

        Args:
            x: ``[member, batch, query, d_model]``, or with tokens concatenated, ``[member, batch · query, d_model]``.
            memory: ``[member, batch, key, d_model]``, or concatenated, in the role cross, else None.
            ctx: Positions and mask.
            cache: Tensors of the tokens so far. In the role cross, a filled cache replaces ``memory``.
            record: If given, the explicit path is used and each step is recorded:

                - ``plain_queries`` and ``plain_keys``, if style or encoding transform them
                - ``queries``, ``keys`` and ``values``
                - ``products`` and ``bias``, if an encoding adds to the scores
                - ``unmixed``, if the style mixes scores
                - ``scores``, ``mask``, ``filled`` (scores with the mask value)
                - ``unmixed_weights``, if the style mixes weights
                - ``weights``, ``heads``
                - ``finished``, if the style has ``post_heads``
                - ``joined``, the concatenated heads, ``[member, tokens, width]``

                All others are ``[member, batch, head, time, ..]``. A style without projections
                records ``values`` and the steps from ``mask`` on, without ``joined``.
            first_values: Those that the layer before returned, ``[member, batch, head, key, width]``; None in the
                first layer.

        Returns:
            The output, with the shape of ``x``, and the first values; None if no layer so far has ``mix_values``.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        shape = x.shape
        x = x.flatten(1, -2)
        if memory is not None:
            memory = memory.flatten(1, -2)
        if not self.style.projects:
            return self._without_projections(x, memory, ctx, record).view(shape), first_values
        inputs = None
        if self._needs_inputs:
            inputs = self._inputs(x, ctx, cache)
            x = inputs[:, :, -ctx.query_positions.shape[1] :].flatten(1, 2)
        q, k, v, first_values = self._project(x, memory, ctx, cache, record, first_values)
        if record is not None:
            record("queries", q)
            record("keys", k)
            record("values", v)
        k = self._repeat(k)
        v = self._repeat(v)
        bias = self._bias(ctx, inputs, q.shape[1])
        if record is not None or self.path == "explicit":
            heads = self._explicit(q, k, v, ctx, bias, record)
        elif self.has_fast_path:
            heads = self.style.fast_path(q, k, v, ctx.mask, ctx.pattern)
            lead = self._lead(q)
            require_shape(self.style, "fast_path", heads, **lead, width=v.shape[-1])
        else:
            heads = self._fused(q, k, v, ctx, bias)
        if "post_heads" in self._overridden:
            heads = heads.view(*q.shape[:2], *heads.shape[-3:])
            finished = self.style.post_heads(heads, _sentences(x, ctx.query_positions), v)
            require_like(
                self.style, "post_heads", finished, heads, "member batch head query value_width"
            )
            heads = finished
            if record is not None:
                record("finished", heads)
        joined = heads.transpose(-3, -2).reshape(x.shape[0], x.shape[1], self._joined)
        if record is not None:
            record("joined", joined)
        return self.output(joined).view(shape), first_values

    def _without_projections(
        self, x: Tensor, memory: Tensor | None, ctx: AttentionContext, record: Record | None
    ) -> Tensor:
        """Return the output of a style without projections, ``[member, tokens, d_model]``.

        Args:
            x: ``[member, tokens, d_model]``.
            memory: The same for the keys; None in self-attention, whose keys are the queries.
            ctx: Positions and mask.
            record: Receives ``values`` and the steps of `_weigh`.

        Raises:
            HeadToHeadError: If ``read`` returns anything else than two tensors of the right shapes, or another hook a
                tensor of a wrong shape or type.
        """
        queries = _sentences(x, ctx.query_positions)
        keys = queries
        if memory is not None:
            keys = _sentences(memory, ctx.key_positions)
        filled, values = self._tuple("read", self.style.read(queries, keys, ctx.mask))
        geometry = self.context.geometry
        lead = {"member": x.shape[0], "batch": queries.shape[1], "head": geometry.output_heads}
        key_time = keys.shape[2]
        require_shape(self.style, "read", filled, **lead, query=queries.shape[2], key=key_time)
        require_shape(self.style, "read", values, **lead, key=key_time, width=geometry.value_width)
        if record is not None:
            record("values", values)
        heads = self._weigh(filled, values, ctx, record).transpose(2, 3)
        return heads.reshape(x.shape)

    def _inputs(self, x: Tensor, ctx: AttentionContext, cache: Cache | None) -> Tensor:
        """Return the inputs of the projections at all keys, ``[member, batch, key, d_model]``."""
        inputs = _sentences(x, ctx.query_positions)
        if cache is not None:
            inputs = cache.append("inputs", inputs)
        if "mix_tokens" not in self._overridden:
            return inputs
        mixed = self.style.mix_tokens(inputs)
        require_like(self.style, "mix_tokens", mixed, inputs, "member batch time d_model")
        return mixed

    def _project(
        self,
        x: Tensor,
        memory: Tensor | None,
        ctx: AttentionContext,
        cache: Cache | None,
        record: Record | None,
        first_values: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return queries, keys, values and first values, ``[member, batch, head, time, width]``.

        The style transforms queries and keys, the encoding rotates them, and the style mixes values with first values
        and with embeddings of the tokens, each if it has the hook. With a cache, keys and values are those of all
        tokens so far; new ones are appended to it. In the role cross, a filled cache replaces ``memory``: it has the
        finished keys and values, and only queries are computed.

        Args:
            x: ``[member, tokens, d_model]``.
            memory: The same for the keys in the role cross; not None unless the cache is filled.
            ctx: Positions and ids.
            cache: The cache of the layer, changed in place, or None.
            record: Receives queries and keys before they are transformed or rotated; in the role cross not with a
                filled cache.
            first_values: As in `forward`.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        geometry = self.context.geometry
        time = ctx.query_positions.shape[1]
        if not self.is_self_attention and cache is not None and cache.tensors:
            q = _split(self._cross_queries(x), time, geometry.heads)
            q, _ = self._transform(q, None)
            q = self._rotate(q, ctx.query_positions, is_sampled=ctx.is_sampled)
            return q, cache.tensors["keys"], cache.tensors["values"], first_values

        if self.is_self_attention:
            q, k, v = self._self_projections(x, ctx, cache)
            # A cached step computes only the new keys, which have the positions of the queries.
            key_positions = ctx.query_positions
        else:
            assert memory is not None
            q = self._cross_queries(x)
            k, v = self.keys_values(memory).split(self._widths[1:], dim=-1)
            key_positions = ctx.key_positions
        key_time = key_positions.shape[1]
        q = _split(q, time, geometry.heads)
        k = _split(k, key_time, geometry.kv_heads)
        v = _split(v, key_time, geometry.value_heads)

        changes_queries = "transform" in self._overridden or "rotate" in self._mechanisms
        if record is not None and changes_queries:
            record("plain_queries", q)
            record("plain_keys", k)
        q, k = self._transform(q, k)
        q = self._rotate(q, ctx.query_positions, is_sampled=ctx.is_sampled)
        k = self._rotate(k, key_positions, is_sampled=ctx.is_sampled)

        if "mix_values" in self._overridden and first_values is None:
            first_values = v
        v = self._changed_values(v, first_values, ctx.ids)
        if cache is not None:
            k = cache.append("keys", k)
            v = cache.append("values", v)
        return q, k, v, first_values

    def _cross_queries(self, x: Tensor) -> Tensor:
        """Return the queries of cross-attention, ``[member, tokens, width]``; a style with width 0 projects none."""
        if self.context.geometry.key_width == 0:
            return x[..., :0]
        queries: Tensor = self.queries(x)
        return queries

    def _changed_values(self, v: Tensor, first_values: Tensor | None, ids: Tensor | None) -> Tensor:
        """Return values ``[member, batch, head, time, width]`` as the style changes them, if it does.

        Args:
            v: The projected values.
            first_values: Those of the first layer; not None for a style with ``mix_values``.
            ids: Ids of the tokens, for ``embed_values``; without them, it is not called.

        Raises:
            HeadToHeadError: If a hook returns a tensor of another shape, or except under autocast of another type.
        """
        axes = "member batch kv_head time value_width"
        if "mix_values" in self._overridden:
            assert first_values is not None
            mixed = self.style.mix_values(v, first_values)
            require_like(self.style, "mix_values", mixed, v, axes)
            v = mixed
        if "embed_values" in self._overridden and ids is not None:
            mixed = self.style.embed_values(v, ids)
            require_like(self.style, "embed_values", mixed, v, axes)
            v = mixed
        return v

    def _self_projections(
        self, x: Tensor, ctx: AttentionContext, cache: Cache | None
    ) -> Sequence[Tensor]:
        """Return queries, keys and values of self-attention, ``[member, tokens, width]``."""
        if "project" not in self._overridden:
            joined: Tensor = self.queries_keys_values(x)
        else:
            parts = self._tuple("project", self.style.project(x), 3)
            for part, width in zip(parts, self._widths, strict=True):
                require_shape(
                    self.style, "project", part, member=len(x), tokens=x.shape[1], width=width
                )
            if "mix_projections" not in self._overridden:
                return parts
            joined = torch.cat(parts, dim=-1)
        if "mix_projections" in self._overridden:
            joined = self._mixed("mix_projections", ctx, cache, joined)
        return tuple(joined.split(self._widths, dim=-1))

    def _mixed(self, hook: str, ctx: AttentionContext, cache: Cache | None, x: Tensor) -> Tensor:
        """Return vectors of tokens, ``[member, tokens, width]``, as a hook that depends on earlier tokens changes them.

        Args:
            hook: The name of the hook and of the cached tensor.
            ctx: Positions.
            cache: The cache of the layer, to which the vectors are appended, or None.
            x: ``[member, tokens, width]``.

        Raises:
            HeadToHeadError: If the hook returns a tensor of another shape, or except under autocast of another type.
        """
        sequences = _sentences(x, ctx.query_positions)
        if cache is not None:
            sequences = cache.append(hook, sequences)
        mixed: Tensor = getattr(self.style, hook)(sequences)
        require_like(self.style, hook, mixed, sequences, "member batch time width")
        return mixed[:, :, -ctx.query_positions.shape[1] :].flatten(1, 2)

    def build_inner(self, feed_forward: nn.Module | SharedModule) -> None:
        """Create the style's parameters in the layer's feed-forward network, if the style changes its inner tensors.

        Raises:
            HeadToHeadError: If `require_members` refuses a parameter.
        """
        if "mix_inner" in self._overridden:
            self.style.build_inner(unshared(feed_forward).inner_width)
            require_members(self.style)

    def feed_forward_mixing(
        self, ctx: AttentionContext, cache: Cache | None = None
    ) -> TokenMixing | None:
        """Return the style's hooks in the layer's feed-forward network, or None without one.

        Args:
            ctx: Positions.
            cache: The cache of the layer, which the hooks change in place, or None.
        """
        if not self._overridden & {"mix_feed_forward", "mix_inner"}:
            return None
        return TokenMixing(
            inputs=partial(self._mixed, "mix_feed_forward", ctx, cache),
            inner=partial(self._mixed, "mix_inner", ctx, cache),
        )

    def _rotate(self, x: Tensor, positions: Tensor, *, is_sampled: bool) -> Tensor:
        """Return queries or keys ``[member, batch, head, time, key_width]`` as the encoding rotates them.

        They are returned unchanged if the encoding does not rotate.

        Args:
            x: Queries or keys.
            positions: ``[1, time]``, or ``[member · batch, time]`` if they are sampled.
            is_sampled: Whether positions are sampled.

        Raises:
            HeadToHeadError: If the encoding returns a tensor of another shape, or except under autocast of another
                type.
        """
        if "rotate" not in self._mechanisms:
            return x
        vectors = x
        # Sampled positions have a row per sentence, so the sentences of all members become a batch of one member.
        if is_sampled:
            vectors = x.flatten(0, 1).unsqueeze(0)
        layer = self.context.layer or 0
        rotated = self.positional.rotate(vectors, positions, self.context.role, layer)
        require_like(
            self.positional, "rotate", rotated, vectors, "member batch head time key_width"
        )
        if is_sampled:
            rotated = rotated.view(x.shape)
        return rotated

    def _transform(self, q: Tensor, k: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return transformed queries and keys; without new keys, the queries take their place."""
        if k is None:
            k = q
        if "transform" not in self._overridden:
            return q, k
        queries, keys = self._tuple("transform", self.style.transform(q, k))
        require_like(self.style, "transform", queries, q, "member batch head time key_width")
        require_like(self.style, "transform", keys, k, "member batch head time key_width")
        return queries, keys

    def _tuple(self, hook: str, result: object, length: int = 2) -> tuple[Tensor, ...]:
        if isinstance(result, tuple) and len(result) == length:
            return result
        number = {2: "two", 3: "three"}[length]
        raise HeadToHeadError(
            f"{type(self.style).__name__}.{hook} returned {type(result).__name__}; return a tuple of "
            f"{number} tensors"
        )

    @staticmethod
    def _lead(q: Tensor) -> dict[str, int]:
        """Return the first four axes of queries by name."""
        members, batch, heads, time, _ = q.shape
        return {"member": members, "batch": batch, "head": heads, "query": time}

    def _repeat(self, x: Tensor) -> Tensor:
        groups = self.context.geometry.heads // self.context.geometry.kv_heads
        if groups == 1:
            return x
        return x.repeat_interleave(groups, dim=2)

    def _bias(self, ctx: AttentionContext, inputs: Tensor | None, batch: int) -> Tensor | None:
        """Return what the encoding adds to scores, ``[member or 1, batch or 1, head or 1, query, key]``, or None.

        It is the sum of the hooks ``bias`` and ``content_bias``. A bias that the encoding caches is the same object in
        all layers.

        Args:
            ctx: Positions.
            inputs: The inputs at all keys, ``[member, batch, key, d_model]``, for ``content_bias``; None without it.
            batch: Sentences of a member.

        Raises:
            HeadToHeadError: If the encoding returns a tensor of a wrong shape.
        """
        bias = self._positions_bias(ctx, batch)
        if "content_bias" not in self._mechanisms or inputs is None:
            return bias
        queries = ctx.query_positions.shape[1]
        added = self.positional.content_bias(
            inputs, queries, self.context.role, self.context.layer or 0
        )
        if added is None:
            return bias
        require_shape(
            self.positional,
            "content_bias",
            added,
            member=len(inputs),
            batch=inputs.shape[1],
            head=(1, self.context.geometry.heads),
            query=queries,
            key=inputs.shape[2],
        )
        if bias is None:
            return added
        return added + bias

    def _positions_bias(self, ctx: AttentionContext, batch: int) -> Tensor | None:
        """Return the result of the hook ``bias``, ``[member or 1, batch or 1, head or 1, query, key]``, or None.

        The encoding returns ``[1, member · batch or 1, ...]`` for sampled positions.

        Args:
            ctx: Positions.
            batch: Sentences of a member.

        Raises:
            HeadToHeadError: If the encoding returns no tensor or one of a wrong shape.
        """
        if "bias" not in self._mechanisms:
            return None
        bias = self.positional.bias(
            ctx.query_positions, ctx.key_positions, self.context.role, self.context.layer or 0
        )
        if bias is None:
            return None
        members = self.context.members
        require_shape(
            self.positional,
            "bias",
            bias,
            **member_and_batch_sizes(members, batch, is_sampled=ctx.is_sampled),
            head=(1, self.context.geometry.heads),
            query=ctx.query_positions.shape[1],
            key=ctx.key_positions.shape[1],
        )
        if ctx.is_sampled and bias.shape[1] > 1:
            bias = bias.view(members, batch, *bias.shape[2:])
        return bias

    def _fused(
        self, q: Tensor, k: Tensor, v: Tensor, ctx: AttentionContext, bias: Tensor | None
    ) -> Tensor:
        """Return the outputs of the heads, ``[member · batch, head, query, value_width]``, without the weights.

        They are computed by the fused kernel or as two batched products, whichever is faster or supported.

        Args:
            q: ``[member, batch, head, query, key_width]``.
            k: ``[member, batch, head, key, key_width]``, repeated for the heads of queries.
            v: ``[member, batch, head, key, value_width]``, repeated likewise.
            ctx: The mask; tensors that are derived from it are stored there for the other layers.
            bias: From `_bias`.
        """
        members, batch = q.shape[:2]
        # The queries and masks of these rows become 0, so all their scores are equal.
        uniform_rows = _for_rows(self._uniform_rows(ctx), members * batch)
        uses_products = self._uses_products(q, k, v)
        in_float32 = uses_products and _faster_in_float32(q, k)
        dtype = torch.float32 if in_float32 else kernel_dtype(q)
        additive_mask = None
        if bias is not None or ctx.mask is not None:
            additive_mask = ctx.derived(
                ("mask and bias", dtype),
                bias,
                lambda: self._additive_mask(ctx, bias, (members, batch), dtype, uniform_rows),
            )
            if on_cuda(q) and not uses_products:
                additive_mask = ctx.derived(
                    "aligned mask", additive_mask, partial(aligned_mask, additive_mask)
                )
        q = q.flatten(0, 1)
        k = k.flatten(0, 1)
        v = v.flatten(0, 1)
        if uniform_rows is not None:
            q = q.masked_fill(uniform_rows, 0.0)
        scale = self.context.geometry.scale
        if in_float32:
            with torch.autocast("cpu", enabled=False):
                return _two_products(
                    q.float(), k.float(), v.float(), additive_mask, self.dropout, scale, ctx
                )
        if uses_products:
            return _two_products(q, k, v, additive_mask, self.dropout, scale, ctx)
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=additive_mask, scale=scale
        )

    def _uses_products(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Return whether attention is computed as two batched products instead of the fused kernel."""
        if not on_cuda(q):
            return self.dropout.is_active or is_short(q, k)
        sentences = q.shape[0] * q.shape[1]
        kernel = attention_kernel(
            kernel_dtype(q), q.shape[-1], v.shape[-1], sentences, self.dropout.is_active
        )
        return kernel.name == "math"

    def _additive_mask(
        self,
        ctx: AttentionContext,
        bias: Tensor | None,
        lead: Sequence[int],
        dtype: torch.dtype,
        uniform_rows: Tensor | None,
    ) -> Tensor:
        """Return the sum of mask and bias, ``[member · batch or 1, head or 1, query, key]``.

        Args:
            ctx: Gives the mask. A mask or ``bias`` must exist (`AssertionError`).
            bias: ``[member or 1, batch or 1, head or 1, query, key]``, or None.
            lead: Members and batch.
            dtype: Type of the sum.
            uniform_rows: Queries whose entries all become 0, from `_uniform_rows`.
        """
        total = _for_rows(ctx.additive(dtype, self.mask_value), lead[0] * lead[1])
        if bias is not None:
            bias = bias.to(dtype)
            if bias.shape[:2] == (1, 1):  # members and sentences share it
                bias = bias[0]
            else:
                bias = bias.expand(*lead, -1, -1, -1).flatten(0, 1)
            total = bias if total is None else total + bias
        assert total is not None
        if uniform_rows is None:
            return total
        return total.masked_fill(uniform_rows, 0.0)

    def _uniform_rows(self, ctx: AttentionContext) -> Tensor | None:
        """Return which queries have uniform weights, ``[member · batch or 1, 1, query, 1]``, or None if none has.

        These are the queries that attend to no key, in members with the mask value ``"-1e9"``: all their scores are
        replaced by the same number. On a GPU, whether there are such queries is not tested, and the result can be False
        for all.
        """
        if self.mask_value in ("-inf", "additive"):
            return None
        if not ctx.has_dead_rows:
            return None
        if not isinstance(self.mask_value, PerMemberMaskValue):
            return ctx.dead_rows
        assert ctx.mask is not None  # without a mask, every query attends to all keys
        attends_to_none = ~ctx.mask.any(dim=-1, keepdim=True)
        is_replaced = self.mask_value.replaced.broadcast_to(attends_to_none)
        return (attends_to_none & is_replaced).flatten(0, 1)

    def _explicit(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        ctx: AttentionContext,
        bias: Tensor | None,
        record: Record | None,
    ) -> Tensor:
        """Return the outputs of the heads, ``[member, batch, head, query, value_width]``, from their weights.

        Args:
            q: ``[member, batch, head, query, key_width]``.
            k: ``[member, batch, head, key, key_width]``, repeated for the heads of queries.
            v: ``[member, batch, head, key, value_width]``, repeated likewise.
            ctx: Positions and mask.
            bias: From `_bias`.
            record: Receives the steps from ``products`` to ``heads``, or None.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        positions = (ctx.query_positions, ctx.key_positions, self.context.role)
        layer = self.context.layer or 0
        products = self.style.scores(q, k, ctx.query_positions, ctx.key_positions)
        members, batch, heads, queries, _ = q.shape
        ends = {"head": heads, "query": queries, "key": k.shape[3]}
        require_shape(self.style, "scores", products, member=members, batch=(1, batch), **ends)
        products = products.to(torch.promote_types(products.dtype, torch.float32))
        added = self.positional.score(q, *positions, layer)
        if added is not None:
            require_shape(
                self.positional, "score", added, member=(1, members), batch=(1, batch), **ends
            )
        if bias is not None:
            bias = bias.to(products.dtype)
            added = bias if added is None else added + bias
        total = products
        if added is not None:
            total = products + added
        scores = self.style.mix_scores(total)
        require_like(self.style, "mix_scores", scores, total, "member batch head query key")
        if record is not None:
            if added is not None:
                record("products", products)
                record("bias", added.expand_as(products))
            if "mix_scores" in self._overridden:
                record("unmixed", total)
            record("scores", scores)
        return self._weigh(apply_mask(scores, ctx.mask, self.mask_value), v, ctx, record)

    def _weigh(
        self, filled: Tensor, v: Tensor, ctx: AttentionContext, record: Record | None
    ) -> Tensor:
        """Return the outputs of the heads for masked scores, ``[member, batch, head, query, value_width]``.

        Args:
            filled: Scores with the mask value, ``[member, batch, head, query, key]``.
            v: ``[member, batch, head, key, value_width]``.
            ctx: Positions and mask.
            record: Receives ``mask``, ``filled``, weights and ``heads``, or None.

        Raises:
            HeadToHeadError: If a hook of a plugin returns a tensor of a wrong shape or type.
        """
        unmixed = self.style.normalise(filled, ctx.mask)
        require_like(self.style, "normalise", unmixed, filled, "member batch head query key")
        weights = self.style.mix(unmixed)
        members, batch, _, queries, keys = unmixed.shape
        heads = self.context.geometry.output_heads
        sizes = {"member": members, "batch": batch, "head": heads, "query": queries, "key": keys}
        require_shape(self.style, "mix", weights, **sizes)
        dropped = self.dropout.transposed(weights)
        if v.dtype == torch.bfloat16:
            dropped = dropped.to(v.dtype)
        positions = (ctx.query_positions, ctx.key_positions, self.context.role)
        values = self.positional.values(dropped, *positions, self.context.layer or 0)
        out = dropped @ v
        if values is not None:
            require_like(
                self.positional, "values", values, out, "member batch head query value_width"
            )
            out = out + values
        if record is not None:
            if ctx.mask is not None:
                record("mask", ctx.mask.expand_as(filled))
            record("filled", filled)
            if "mix" in self._overridden:
                record("unmixed_weights", unmixed)
            record("weights", weights)
            record("heads", out)
        return out


def _sentences(x: Tensor, positions: Tensor) -> Tensor:
    """Reshape ``[member, batch · time, width]`` to ``[member, batch, time, width]``."""
    return x.view(x.shape[0], -1, positions.shape[1], x.shape[2])


def _split(x: Tensor, time: int, heads: int) -> Tensor:
    """Reshape ``[member, batch · time, head · width]`` to ``[member, batch, head, time, width]``."""
    batch, width = x.shape[1] // time, x.shape[2] // heads
    return x.view(x.shape[0], batch, time, heads, width).transpose(2, 3)


def _for_rows(table: Tensor | None, rows: int) -> Tensor | None:
    """Repeat the entry of each member for its sentences: ``[member · batch or 1, ..]``."""
    if table is None or len(table) in (1, rows):
        return table
    return table.repeat_interleave(rows // len(table), dim=0)


def is_short(q: Tensor, k: Tensor) -> bool:
    """Return whether two batched products are faster than the fused kernel on a CPU."""
    positions = q.shape[-2] * k.shape[-2]
    if kernel_dtype(q) == torch.bfloat16:
        return positions <= MAX_SHORT_SCORES_BFLOAT16
    return positions <= MAX_SHORT_SCORES and math.prod(q.shape[:-2]) >= MIN_SHORT_HEADS


def _faster_in_float32(q: Tensor, k: Tensor) -> bool:
    """Return whether the products of a training step with bfloat16 are faster in float32 on a CPU.

    For few positions, a bfloat16 product saves less time than oneDNN takes to generate code for its shape.
    """
    short = q.shape[-2] * k.shape[-2] <= MAX_SHORT_SCORES
    return (
        short and torch.is_grad_enabled() and not on_cuda(q) and kernel_dtype(q) == torch.bfloat16
    )


def _stores_keys_first(q: Tensor, k: Tensor) -> bool:
    """Return whether the scores of two products are stored as ``[.., key, query]`` instead of ``[.., query, key]``.

    On a CPU, softmax along an inner axis is vectorised over the queries, while along a last axis of fewer than 16 keys
    it is not (torch 2.13: 3.5 times slower). Along the last axis, it reads and writes bfloat16 without copies.
    """
    if on_cuda(q):
        return False
    return kernel_dtype(q) != torch.bfloat16 or k.shape[-2] < MIN_KEYS_LAST


def _two_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    additive_mask: Tensor | None,
    dropout: Dropout,
    scale: float,
    ctx: AttentionContext,
) -> Tensor:
    """Return attention as two batched products, ``[member · batch, head, query, value_width]``.

    It is for short sequences and dropout of weights, and equals the fused kernel, which does not support dropout per
    member. Queries that attend to no key give 0 with the mask value -inf.

    Args:
        q: ``[member · batch, head, query, key_width]``.
        k: ``[member · batch, head, key, key_width]``.
        v: ``[member · batch, head, key, value_width]``.
        additive_mask: Mask and bias, ``[member · batch or 1, head or 1, query, key]``, or None.
        dropout: Dropout of the weights.
        scale: Factor of the products.
        ctx: Stores what is derived from the mask for the other layers.
    """
    lead = q.shape[:2]
    queries = q.shape[2]
    flat_q = q.flatten(0, 1)
    flat_k = k.flatten(0, 1)
    flat_v = v.flatten(0, 1)
    keys_first = _stores_keys_first(q, k)
    left, right = (flat_k, flat_q) if keys_first else (flat_q, flat_k)
    dead_rows: Tensor | None = None
    if additive_mask is None:
        scores = torch.bmm(left, right.transpose(1, 2)) * scale
    else:
        flat_mask, dead_rows = _mask_of_products(additive_mask, lead, keys_first, ctx)
        scores = torch.baddbmm(flat_mask, left, right.transpose(1, 2), alpha=scale)
    # Softmax is computed in float32. Only the kernel for the last axis on a CPU converts bfloat16 by itself.
    if keys_first or on_cuda(q):
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    weights = torch.softmax(scores, dim=1 if keys_first else 2)
    weights = dropout(weights) if keys_first else dropout.transposed(weights)
    if dead_rows is not None:
        weights = weights.masked_fill(dead_rows, 0.0)
    if keys_first:
        weights = weights.transpose(1, 2)
    return torch.bmm(weights, flat_v).view(*lead, queries, -1)


def _mask_of_products(
    mask: Tensor, lead: Sequence[int], keys_first: bool, ctx: AttentionContext
) -> tuple[Tensor, Tensor | None]:
    """Return an additive mask for two batched products, and True for the queries whose weights the caller sets to 0.

    These are the queries whose mask is -inf for all keys. They have 0 in the returned mask, so that their weights are
    finite before. The second result is None if there are none; on a GPU, this is not tested, and it can be False for
    all.

    Args:
        mask: ``[member · batch or 1, head or 1, query, key]``.
        lead: Sentences over all members, and heads; the first axis of the results is their product.
        keys_first: Whether the results are ``[.., key, query]`` instead of ``[.., query, key]``.
        ctx: Stores the results for the other layers.
    """

    def flat(table: Tensor) -> Tensor:
        if keys_first:
            table = table.transpose(-2, -1)
        return table.expand(*lead, *table.shape[-2:]).reshape(-1, *table.shape[-2:])

    if ctx.has_dead_rows:
        dead_rows = ctx.derived(
            "dead rows", mask, lambda: (mask == -torch.inf).all(dim=-1, keepdim=True)
        )
        if any_or_unknown(dead_rows):
            flat_mask = ctx.derived(
                "mask of products", mask, lambda: flat(mask.masked_fill(dead_rows, 0.0))
            )
            flat_rows = ctx.derived("dead rows of products", dead_rows, lambda: flat(dead_rows))
            return flat_mask, flat_rows
    return ctx.derived("mask of products", mask, lambda: flat(mask)), None


def apply_mask(scores: Tensor, mask: Tensor | None, mask_value: MaskValue) -> Tensor:
    """Return scores with a mask applied: set to ``-inf`` or ``-1e9``, or lowered by 1e9 (``additive``).

    Args:
        scores: ``[member, batch, head, query, key]``.
        mask: ``[member or 1, batch or 1, 1, query, key]``, True where a query attends; None returns the scores.
        mask_value: The value of all members, or of each.
    """
    if mask is None:
        return scores
    if isinstance(mask_value, PerMemberMaskValue):
        added = torch.where(mask_value.added.broadcast_to(scores) > 0, scores, 0.0)
        return torch.where(mask, scores, added + mask_value.low.broadcast_to(scores))
    if mask_value == "additive":
        return torch.where(mask, scores, scores - 1e9)
    lowest = -torch.inf if mask_value == "-inf" else -1e9
    return scores.masked_fill(~mask, lowest)
