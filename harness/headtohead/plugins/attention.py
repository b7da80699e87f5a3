"""Attention styles: the head geometry and, where it is not softmax attention, the mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.plugins.component import Component, Geometry
from headtohead.plugins.entry import Options, Setting
from headtohead.schema.phrases import Phrase

if TYPE_CHECKING:
    from headtohead.schema.run_config import ModelConfig


MaskPattern = Literal["same", "prefix", "other"]
"""The structure of a mask, as its scheme declares it: all queries attend to the same keys, each query attends to the
keys up to its own position, or neither. Keys that no query attends to, such as padding, are ignored.
"""

MIXING_HOOKS = (
    "mix_embeddings",
    "mix_tokens",
    "mix_projections",
    "mix_feed_forward",
    "mix_inner",
)
"""Hooks whose results may depend on earlier tokens."""


class HeadOptions(Options):
    """Options of a style with grouped queries (Ainslie et al. 2023, arXiv:2305.13245, section 2.2)."""

    kv_heads: Annotated[int | None, Phrase("{value} key-value heads")] = Field(
        None,
        ge=1,
        le=1024,
        description="key/value heads; must divide model.heads; default: model.heads",
    )


class Attention(Component):
    """An attention style; the base class is softmax attention with split heads.

    An experiment sets a style per role. The core builds one object per layer and role, and calls
    the hooks of a layer in this order:

    1. ``mix_tokens(x)`` in self-attention, then the projections, or ``project(x)`` and ``mix_projections(x)`` in
       self-attention; before the first layer ``mix_embeddings(x)``
    2. ``transform(q, k)``, then the encoding's ``rotate``; ``mix_values(values, first)`` and
       ``embed_values(values, ids)``
    3. ``scores(q, k, ...)``, then the encoding's ``score``, ``bias`` and ``content_bias`` are added
    4. ``mix_scores(scores)``, then masked entries are set to the mask value
    5. ``normalise(scores, mask)``
    6. ``mix(weights)``, then dropout, the product with the values, and the encoding's ``values``
    7. ``post_heads(heads, x, values)``, then the output projection
    8. ``mix_feed_forward(x)`` and ``mix_inner(x)`` in the feed-forward network of the layer, for a style of
       self-attention

    Training uses torch's fused kernel unless a style overrides ``scores``, ``mix_scores``, ``normalise``, ``mix`` or
    ``read``. Such a style trains on the explicit path, which computes the weights as a matrix, unless it also defines
    ``fast_path``. Attention maps always use the explicit path; the
    invariants verify that both paths agree.
    """

    hooks = (
        *(
            "geometry",
            "mix_embeddings",
            "mix_tokens",
            "project",
            "mix_projections",
            "transform",
            "mix_values",
            "embed_values",
            "scores",
        ),
        *("mix_scores", "normalise", "mix", "fast_path", "post_heads", "read"),
        *("mix_feed_forward", "mix_inner"),
    )

    weights: ClassVar[Literal["distribution", "positive", "signed"]] = "distribution"
    """Kind of a row of weights: a distribution, positive numbers, or numbers of either sign.

    The invariants verify it. Maps of signed weights are drawn with a diverging colour scale.
    """

    position_dependent: ClassVar[bool] = False
    """Whether scores depend on positions without any encoding."""

    map_note: ClassVar[str] = ""
    """A few words on how maps are computed, for a style that trains without a weight matrix."""

    projects: ClassVar[bool] = True
    """Whether queries, keys, values and the concatenated heads are projected.

    A style without projections defines ``read`` instead of ``scores``. The widths of its heads add
    up to d_model. It has no cached decoding, and encodings cannot act on its queries or scores.
    """

    temperature: ClassVar[float | None] = 1.0
    """Standard deviation of the scores of random queries and keys with unit variance.

    The invariants verify it for styles with dot-product scores. None for a style without a
    defined scale.
    """

    unsupported: ClassVar[Mapping[str, str]] = {}
    """Mechanisms of encodings (``MECHANISMS``) that the style cannot use, each with the reason.

    A reason continues a sentence that starts with the encoding's name: "acts on ..., which ...
    never computes". Do not list what follows from ``projects``, ``position_dependent`` or a key width
    of 0.
    """

    pitfalls: ClassVar[Mapping[str, str]] = {}
    """Pitfalls of the style: names and consequences, which plan, record and report state for each variant."""

    known_violations: ClassVar[frozenset[str]] = frozenset()
    """Invariants that the style violates by design, because it was published or taught that way.

    Their verdicts are then "known violation" and do not fail a check.
    """

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return the numbers and widths of heads; by default heads of width d_model / heads.

        Called during planning and when the model is built. An option ``kv_heads`` (`HeadOptions`) is the number of key
        and value heads.

        Raises:
            HeadToHeadError: If the sizes are inconsistent. The message contains them.
        """
        if model.d_model % model.heads:
            below = model.d_model - model.d_model % model.heads
            raise HeadToHeadError(
                f"{cls.entry_name} needs d_model to be a multiple of heads, got {model.d_model} and {model.heads}; "
                f"change d_model to {f'{below} or ' * bool(below)}{below + model.heads}"
            )
        kv_heads = getattr(options, "kv_heads", None) or model.heads
        if model.heads % kv_heads:
            raise HeadToHeadError(
                f"{cls.entry_name} needs kv_heads to divide heads, got {kv_heads} and {model.heads}"
            )
        width = model.d_model // model.heads
        return Geometry(model.heads, kv_heads, width, width, width**-0.5)

    @classmethod
    def incompatible_with(cls, options: Options, setting: Setting) -> str | None:
        """Return a reason for cross-attention if the style overrides a hook that is called in self-attention only."""
        if setting.role != "cross" or not cls._overrides_any(
            *MIXING_HOOKS, "project", "embed_values"
        ):
            return None
        return f"{cls.entry_name} is defined for self-attention; use another attention.cross"

    @classmethod
    def depends_on_order(cls, options: Options) -> bool:
        """Return whether outputs depend on the order of tokens without any encoding."""
        return cls.position_dependent or cls._overrides_any(*MIXING_HOOKS)

    @classmethod
    def _overrides_any(cls, *hooks: str) -> bool:
        return any(getattr(cls, hook) is not getattr(Attention, hook) for hook in hooks)

    def build_inner(self, width: int) -> None:
        """Create the parameters of ``mix_inner``, as in ``build``; called once the feed-forward network is built.

        Args:
            width: Width of the argument of ``mix_inner``: ``d_ff``, or twice as much in a gated network.
        """

    @classmethod
    def only_length(cls, options: Options, model: ModelConfig) -> int | None:
        """Return the only number of target tokens that the style supports, or None for any."""
        return None

    def read(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return masked scores and values of a style without projections.

        Args:
            x: Inputs at the queries, ``[member, batch, query, d_model]``.
            memory: Inputs at the keys, ``[member, batch, key, d_model]``; ``x`` in self-attention.
            mask: ``[member, batch or 1, 1, query, key]``, or None where nothing is masked.

        Returns:
            Scores ``[member, batch, head, query, key]`` and values
            ``[member, batch, head, key, value width]``.
        """
        raise NotImplementedError

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Return scaled scores ``[member, batch or 1, head, query, key]``.

        Args:
            q: Queries, ``[member, batch, head, query, key width]``.
            k: Keys, ``[member, batch, head, key, key width]``, repeated for grouped queries.
            query_positions: ``[1, query]``, as an encoding receives them.
            key_positions: ``[1, key]``.
        """
        return q @ k.transpose(-2, -1) * self.context.geometry.scale

    def mix_scores(self, scores: Tensor) -> Tensor:
        """Return changed scores of equal shape; called after encodings acted, before masking."""
        return scores

    def fast_path(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern
    ) -> Tensor:
        """Return the output of the heads without computing a weight matrix.

        It must equal the explicit path. The core uses the explicit path instead for maps, for
        dropout of attention weights, and for encodings that act on scores or values.

        Args:
            q: Queries, ``[member, batch, head, query, key width]``.
            k: Keys, ``[member, batch, head, key, key width]``.
            v: Values, ``[member, batch, head, key, value width]``.
            mask: ``[member, batch or 1, 1, query, key]``, or None where nothing is masked.
            pattern: The structure of ``mask``.

        Returns:
            ``[member, batch, head, query, value width]``.
        """
        raise NotImplementedError

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """Return changed head outputs, called before the heads are concatenated and projected.

        Args:
            heads: ``[member, batch, head, query, value width]``.
            x: Inputs of the queries' projection, ``[member, batch, query, d_model]``.
            values: ``[member, batch, head, key, value width]``, repeated for grouped queries. In self-attention, those
                of the queries are last.
        """
        return heads

    def mix_embeddings(self, x: Tensor) -> Tensor:
        """Return changed token embeddings of the role, ``[member, batch, time, d_model]``.

        Called on the style of the role's first layer, after ``model.embedding_scale`` and before positions are added.
        A result may depend on its token and earlier tokens, as in ``mix_tokens``.
        """
        return x

    def mix_tokens(self, x: Tensor) -> Tensor:
        """Return changed inputs of the projections, ``[member, batch, time, d_model]``.

        Called in self-attention only. A result may depend on its token and earlier tokens: padding follows the tokens,
        and in cached decoding the core passes the inputs of all tokens so far and uses the results of the new tokens.
        """
        return x

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of self-attention, for a style that replaces the projections.

        The core then creates no projections of queries, keys and values. A result may depend on its token only.

        Args:
            x: ``[member, tokens, d_model]``, with the tokens of a batch concatenated.

        Returns:
            ``[member, tokens, number of heads · width]`` each, with the numbers and widths of ``geometry``.
        """
        raise NotImplementedError

    def mix_projections(self, x: Tensor) -> Tensor:
        """Return changed queries, keys and values of self-attention, ``[member, batch, time, width]``.

        Called after the projections. A result may depend on its token and earlier tokens, as in ``mix_tokens``.

        Args:
            x: Queries, keys and values of all heads, concatenated along the width.
        """
        return x

    def mix_feed_forward(self, x: Tensor) -> Tensor:
        """Return changed inputs of the layer's feed-forward network, ``[member, batch, time, d_model]``.

        They are normalised before in a pre-norm model. A result may depend on its token and earlier tokens, as in
        ``mix_tokens``.
        """
        return x

    def mix_inner(self, x: Tensor) -> Tensor:
        """Return a changed result of the feed-forward network's first map, before its activation.

        A result may depend on its token and earlier tokens, as in ``mix_tokens``.

        Args:
            x: ``[member, batch, time, d_ff]``; in a gated network, the argument of the activation and then the gate,
                ``[member, batch, time, 2 · d_ff]``.
        """
        return x

    def mix_values(self, values: Tensor, first: Tensor) -> Tensor:
        """Return changed values, ``[member, batch, key and value head, key, value width]``.

        A result may depend on its token only. In cached decoding, the core passes the values of new tokens.

        Args:
            values: The projected values.
            first: The projected values of the first layer of the role with ``mix_values``; in this layer, ``values``.
        """
        return values

    def embed_values(self, values: Tensor, ids: Tensor) -> Tensor:
        """Return changed values that depend on token ids, ``[member, batch, key and value head, key, value width]``.

        Called in self-attention only, after ``mix_values``. In cached decoding, the core passes the values and ids of
        new tokens. The parameters of a style with this hook count as embeddings.

        Args:
            values: The values so far.
            ids: ``[member, batch, key]``, smaller than ``context.words``.
        """
        return values

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return changed queries and keys, ``[member, batch, head, time, key width]``.

        Called after the projections and before the encoding's ``rotate``.
        """
        return q, k

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return weights of the shape of ``scores``, ``[member, batch, head, query, key]``.

        ``scores`` already contain the mask value. A row in which every score is -inf must give
        weights of 0, as the fused kernel does.
        """
        if mask is None:
            return torch.softmax(scores, dim=-1)
        # The softmax of such a row is NaN, and so is its gradient even where none flows back.
        dead = (scores == -torch.inf).all(dim=-1, keepdim=True)
        return torch.softmax(scores.masked_fill(dead, 0.0), dim=-1).masked_fill(dead, 0.0)

    def mix(self, weights: Tensor) -> Tensor:
        """Return changed weights, for example mixed across heads; called after ``normalise``.

        The head axis may shrink to ``mixed_heads`` of the geometry.
        """
        return weights
