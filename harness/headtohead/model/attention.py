"""Multi-head attention as the core executes it: one fused path, one explicit path, equal results.

Both compute ``mix(normalise(fill(mix_scores(scores + score + bias), keep))) · v + values``, where
scores are ``scale · qkᵀ`` unless the style has its own
(Vaswani et al. 2017, section 3.2, with the places where variants act). The fused path hands it to
``scaled_dot_product_attention``; the explicit path has the weights and can show them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from headtohead.errors import UndefinedError
from headtohead.model.attention_context import AttentionContext, Cache, may_be
from headtohead.model.dropout import Dropout
from headtohead.model.fit import misfit
from headtohead.model.layers import Init, Record, StackedLinear
from headtohead.model.members import Fill, MixedFill
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import BuildContext, Positional

SHORT = 24 * 24
"""Query times key length up to which, on a CPU, two batched products beat the fused kernel."""

MANY = 64
"""Number of heads, over members and batch, from which they do.

Both measured on this project's sizes, forward and backward: up to 2.1 times
(docs/internals/performance.md).
"""


def overrides(part: nn.Module, base: type, name: str) -> bool:
    """Tell whether a plugin's class replaces a method of its family's base class."""
    return getattr(type(part), name) is not getattr(base, name)


class MultiHeadAttention(nn.Module):
    """One attention of every member of a stack.

    Args:
        context: Sizes, role and generators.
        style: The attention style, whose geometry is in ``context``.
        positional: The encoding of this role, shared by its layers.
        fill: ``"-inf"``, ``"-1e9"`` (masked scores are replaced) or ``"additive"`` (1e9 is
            subtracted from them).
        self_attention: Whether keys and values come from what asks, or from a memory.

    Raises:
        UndefinedError: If the encoding acts on what the style does not have.
    """

    def __init__(
        self,
        context: BuildContext,
        style: Attention,
        positional: Positional,
        fill: Fill,
        dropout: Dropout,
        bias: bool,
        init: Init,
        self_attention: bool,
    ) -> None:
        super().__init__()
        acts = positional.ways
        for one in positional.parts:
            reason = misfit(type(one), one.ways, type(style), context.geometry, context.role)
            if reason:
                raise UndefinedError(reason)
        self.context = context
        self.style = style
        # Held in a tuple: the encoding belongs to the model, not to each of its layers.
        self._shared = (positional,)
        self.fill = fill
        self.dropout = dropout
        self.self_attention = self_attention
        geometry = context.geometry
        self._groups = geometry.heads // geometry.kv_heads
        self._joined = geometry.reading_heads * geometry.value_width
        self._projects = style.projects
        if style.projects:
            self._build_projections(bias, init)
        self._rotates = "rotate" in acts
        self._transforms = overrides(style, Attention, "transform")
        self._finishes = overrides(style, Attention, "post_heads")
        self._mixes_scores = overrides(style, Attention, "mix_scores")
        self._mixes = overrides(style, Attention, "mix")
        self._has_bias = "bias" in acts
        own = ("scores", "mix_scores", "normalise", "mix")
        needs_weights = (
            not style.projects
            or any(overrides(style, Attention, name) for name in own)
            or bool(acts & {"score", "values"})
        )
        # Dropout acts on weights, which a shortcut never makes.
        self._has_shortcut = (
            overrides(style, Attention, "fast_path") and not acts & {"bias", "score", "values"} and not dropout.rate
        )
        needs_weights = needs_weights and not self._has_shortcut
        self.path = "explicit" if needs_weights else "fused"
        """``"fused"``, or ``"explicit"`` where the variant needs the weights themselves."""

    @property
    def asks_masks(self) -> bool:
        """Whether the host reads every mask, to know what it shows."""
        return self._has_shortcut

    def _build_projections(self, bias: bool, init: Init) -> None:
        context, geometry = self.context, self.context.geometry
        generators, d_model = context.generators, context.d_model
        q = geometry.heads * geometry.key_width
        k = geometry.kv_heads * geometry.key_width
        v = geometry.value_heads * geometry.value_width
        if self.self_attention:
            self.queries_keys_values = StackedLinear(generators, d_model, [q, k, v], bias, init)
        else:
            if q:
                self.queries = StackedLinear(generators, d_model, [q], bias, init)
            self.keys_values = StackedLinear(generators, d_model, [k, v], bias, init)
        self._widths = [q, k, v]
        self.output = StackedLinear(generators, self._joined, [d_model], bias, init)

    @property
    def positional(self) -> Positional:
        """The encoding of this role."""
        return self._shared[0]

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        view: AttentionContext,
        cache: Cache | None = None,
        record: Record | None = None,
    ) -> Tensor:
        """Attend from ``x`` to itself, or to ``memory`` in the role cross.

        Args:
            x: ``[member, batch, query, d_model]``.
            memory: ``[member, batch, key, d_model]`` in the role cross, else None.
            view: Positions and mask.
            cache: Keys and values so far; in the role cross a filled cache replaces ``memory``.
            record: If given, the explicit path is taken and each step handed over: ``queries``,
                ``keys`` and ``values`` (before that ``plain_queries`` and ``plain_keys``, where
                style or encoding change them), ``scores`` (before that ``products`` and ``bias``,
                where an encoding adds to them, and ``unmixed``, where the style mixes them),
                ``mask``, ``filled``, ``weights`` (before that ``unmixed_weights``, where the style
                mixes them), ``heads`` (and ``finished``), all ``[member, batch, head, time, ..]``,
                and ``joined`` ``[member, tokens, width]``. A style without projections has only the
                last five, and its ``values``.
        """
        flat = None if memory is None else memory.flatten(1, 2)
        return self.attend(x.flatten(1, 2), flat, view, cache, record).view(x.shape)

    def attend(
        self,
        x: Tensor,
        memory: Tensor | None,
        view: AttentionContext,
        cache: Cache | None = None,
        record: Record | None = None,
    ) -> Tensor:
        """As ``forward``, with the tokens of a batch in one row: ``[member, tokens, d_model]``."""
        if not self._projects:
            return self._read(x, memory, view, record)
        q, k, v = self._project(x, memory, view, cache, record)
        if record is not None:
            record("queries", q)
            record("keys", k)
            record("values", v)
        k, v = self._repeat(k), self._repeat(v)
        if record is None and self.path == "fused":
            heads = self._without_weights(q, k, v, view)
        else:
            heads = self._explicit(q, k, v, view, record)
        if self._finishes:
            heads = self.style.post_heads(heads.view(*q.shape[:2], *heads.shape[-3:]))
            if record is not None:
                record("finished", heads)
        joined = heads.transpose(-3, -2).reshape(x.shape[0], x.shape[1], self._joined)
        if record is not None:
            record("joined", joined)
        output: Tensor = self.output(joined)
        return output

    def _read(self, x: Tensor, memory: Tensor | None, view: AttentionContext, record: Record | None) -> Tensor:
        """Attend as a style does that projects nothing."""
        queries = _sentences(x, view.query_positions)
        read = queries if memory is None else _sentences(memory, view.key_positions)
        filled, values = self.style.read(queries, read, view.mask)
        if record is not None:
            record("values", values)
        heads = self._weigh(filled, values, view, record).transpose(2, 3)
        return heads.reshape(x.shape)

    def _project(
        self,
        x: Tensor,
        memory: Tensor | None,
        view: AttentionContext,
        cache: Cache | None,
        record: Record | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, ``[member, batch, head, time, width]``."""
        geometry = self.context.geometry
        time = view.query_positions.shape[1]
        if self.self_attention:
            q, k, v = self.queries_keys_values(x).split(self._widths, dim=-1)
            key_time = time
        else:
            q = self.queries(x) if geometry.key_width else x[..., :0]
            if cache is not None and cache.filled:
                return self._place_queries(q, view), cache.keys, cache.values
            assert memory is not None
            k, v = self.keys_values(memory).split(self._widths[1:], dim=-1)
            key_time = view.key_positions.shape[1]
        q = _split(q, time, geometry.heads)
        k, v = _split(k, key_time, geometry.kv_heads), _split(v, key_time, geometry.value_heads)
        if record is not None and (self._transforms or self._rotates):
            record("plain_queries", q)
            record("plain_keys", k)
        if self._transforms:
            q, k = self.style.transform(q, k)
        if self._rotates:
            # A cached step brings only the new keys, which stand where the queries stand.
            new_keys = view.query_positions if self.self_attention else view.key_positions
            q = self._rotate(q, view.query_positions, view)
            k = self._rotate(k, new_keys, view)
        if cache is not None:
            k, v = cache.append(k, v)
        return q, k, v

    def _place_queries(self, queries: Tensor, view: AttentionContext) -> Tensor:
        """Return queries alone, whose keys are cached, as ``_project`` does."""
        q = _split(queries, view.query_positions.shape[1], self.context.geometry.heads)
        if self._transforms:
            q, _ = self.style.transform(q, q)
        if self._rotates:
            q = self._rotate(q, view.query_positions, view)
        return q

    def _rotate(self, x: Tensor, positions: Tensor, view: AttentionContext) -> Tensor:
        role = self.context.role
        if not view.drawn:
            return self.positional.rotate(x, positions, role)
        return self.positional.rotate(x.flatten(0, 1).unsqueeze(0), positions, role).view(x.shape)

    def _repeat(self, x: Tensor) -> Tensor:
        groups = self._groups
        return x if groups == 1 else x.repeat_interleave(groups, dim=2)

    def _bias(self, view: AttentionContext, dtype: torch.dtype) -> Tensor | None:
        if not self._has_bias:
            return None
        bias = self.positional.bias(
            view.query_positions, view.key_positions, self.context.role, self.context.layer or 0
        )
        if bias is None:
            return None
        if view.drawn:
            bias = bias.view(self.context.members, -1, *bias.shape[2:])
        return bias.to(dtype)

    def _without_weights(self, q: Tensor, k: Tensor, v: Tensor, view: AttentionContext) -> Tensor:
        """Return what the heads read, members folded into the batch or not."""
        if not self._has_shortcut:
            return self._fused(q, k, v, view)
        pattern = view.pattern
        if pattern is None:
            pattern = "prefix" if self.context.role == "decoder" else "same"
        return self.style.fast_path(q, k, v, view.mask, pattern)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, view: AttentionContext) -> Tensor:
        """Return what the heads read, ``[member · batch, head, query, width]``."""
        bias = self._bias(view, q.dtype)
        rows = q.shape[0] * q.shape[1]
        additive_mask = _for_rows(view.additive(q.dtype, self.fill), rows)
        if bias is not None:
            bias = _fold(bias, *q.shape[:2])
        q, k, v = q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)
        level = None if self.fill in ("-inf", "additive") else self._level_rows(view)
        level = _for_rows(level, rows)
        if additive_mask is not None and level is not None:
            q, additive_mask = q.masked_fill(level, 0.0), additive_mask.masked_fill(level, 0.0)
            bias = None if bias is None else bias.masked_fill(level, 0.0)
        if bias is not None:
            additive_mask = bias if additive_mask is None else additive_mask + bias
        scale = self.context.geometry.scale
        if self.dropout.acts or is_short(q, k):
            return _two_products(q, k, v, additive_mask, self.dropout, scale, view)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=additive_mask, scale=scale)

    def _level_rows(self, view: AttentionContext) -> Tensor | None:
        """Return the rows that keep no key and whose scores are all replaced by one number.

        Their weights are uniform. ``[member · batch or 1, 1, query, 1]``.
        """
        if not view.has_dead_rows:
            return None
        if isinstance(self.fill, MixedFill):
            assert view.mask is not None
            dead = ~view.mask.any(dim=-1, keepdim=True)
            return (dead & self.fill.replaced.along(dead)).flatten(0, 1)
        return view.dead_rows if self.fill == "-1e9" else None

    def _explicit(self, q: Tensor, k: Tensor, v: Tensor, view: AttentionContext, record: Record | None) -> Tensor:
        places = (view.query_positions, view.key_positions, self.context.role)
        layer = self.context.layer or 0
        products = self.style.scores(q, k, view.query_positions, view.key_positions)
        added = self.positional.score(q, *places, layer)
        bias = self._bias(view, products.dtype)
        if bias is not None:
            added = bias if added is None else added + bias
        total = products if added is None else products + added
        scores = self.style.mix_scores(total)
        if record is not None:
            if added is not None:
                record("products", products)
                record("bias", added.expand_as(products))
            if self._mixes_scores:
                record("unmixed", total)
            record("scores", scores)
        return self._weigh(fill_masked(scores, view.mask, self.fill), v, view, record)

    def _weigh(self, filled: Tensor, v: Tensor, view: AttentionContext, record: Record | None) -> Tensor:
        """Turn filled scores into weights and read the values with them."""
        unmixed = self.style.normalise(filled, view.mask)
        weights = self.style.mix(unmixed)
        dropped = self.dropout.turned(weights)
        places = (view.query_positions, view.key_positions, self.context.role)
        values = self.positional.values(dropped, *places, self.context.layer or 0)
        out = dropped @ v if values is None else dropped @ v + values
        if record is not None:
            if view.mask is not None:
                record("mask", view.mask.expand_as(filled))
            record("filled", filled)
            if self._mixes:
                record("unmixed_weights", unmixed)
            record("weights", weights)
            record("heads", out)
        return out


def _sentences(x: Tensor, positions: Tensor) -> Tensor:
    """Turn ``[member, batch · time, width]`` to ``[member, batch, time, width]``."""
    return x.view(x.shape[0], -1, positions.shape[1], x.shape[2])


def _split(x: Tensor, time: int, heads: int) -> Tensor:
    """Turn ``[member, batch · time, head · width]`` to ``[member, batch, head, time, width]``."""
    batch, width = x.shape[1] // time, x.shape[2] // heads
    return x.view(x.shape[0], batch, time, heads, width).transpose(2, 3)


def _fold(bias: Tensor, members: int, batch: int) -> Tensor:
    """Bring ``[member|1, batch|1, head|1, query, key]`` to the folded batch of the members."""
    if bias.shape[0] == 1 and bias.shape[1] == 1:
        return bias[0]
    return bias.expand(members, batch, -1, -1, -1).flatten(0, 1)


def _for_rows(table: Tensor | None, rows: int) -> Tensor | None:
    """Give every sentence of a member what its member has: ``[member · batch or 1, ..]``."""
    if table is None or len(table) in (1, rows):
        return table
    return table.repeat_interleave(rows // len(table), dim=0)


def is_short(q: Tensor, k: Tensor) -> bool:
    """Tell whether two batched products are the faster kernel here."""
    return q.device.type == "cpu" and q.shape[-2] * k.shape[-2] <= SHORT and math.prod(q.shape[:-2]) >= MANY


def _two_products(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    additive_mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor],
    scale: float,
    view: AttentionContext,
) -> Tensor:
    """Attention as two batched products, of short sequences and where weights are dropped.

    Equal to the fused kernel, which has no dropout of each member's own.

    Scores are held as ``[.., key, query]``: softmax along an inner axis is vectorised over the
    queries, while along a last axis of under 16 keys it is not (torch 2.13: 3.5 times slower).
    Rows that keep no key give zero, which only -inf can ask for.
    """
    lead, queries, keys = q.shape[:2], q.shape[2], k.shape[2]
    flat_q, flat_k, flat_v = (x.flatten(0, 1) for x in (q, k, v))
    if additive_mask is None:
        scores = torch.bmm(flat_k, flat_q.transpose(1, 2)) * scale
    else:
        turned = additive_mask.transpose(-2, -1).expand(*lead, keys, queries).reshape(-1, keys, queries)
        scores = torch.baddbmm(turned, flat_k, flat_q.transpose(1, 2), alpha=scale)
    dead = None
    if additive_mask is not None and view.has_dead_rows:
        hidden = (additive_mask == -torch.inf).all(dim=-1).unsqueeze(-2)
        if may_be(hidden):
            dead = hidden.expand(*lead, 1, queries).reshape(-1, 1, queries)
    if dead is not None:
        scores = scores.masked_fill(dead, 0.0)
    weights = dropout(torch.softmax(scores, dim=1))
    if dead is not None:
        weights = weights.masked_fill(dead, 0.0)
    return torch.bmm(weights.transpose(1, 2), flat_v).view(*lead, queries, -1)


def fill_masked(scores: Tensor, mask: Tensor | None, fill: Fill) -> Tensor:
    """Apply a mask to scores: ``-inf``, replaced by ``-1e9``, or 1e9 subtracted (``additive``)."""
    if mask is None:
        return scores
    if isinstance(fill, MixedFill):
        added = torch.where(fill.added.along(scores) > 0, scores, 0.0)
        return torch.where(mask, scores, added + fill.low.along(scores))
    if fill == "additive":
        return torch.where(mask, scores, scores - 1e9)
    return scores.masked_fill(~mask, -torch.inf if fill == "-inf" else -1e9)
