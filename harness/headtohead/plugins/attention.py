"""Attention styles: the head geometry and, where it is not softmax attention, the mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.plugins.component import Component, Geometry
from headtohead.plugins.entry import Options

if TYPE_CHECKING:
    from headtohead.schema.run_config import ModelConfig


MaskPattern = Literal["same", "prefix", "other"]
"""The structure of a mask, as its scheme declares it: all queries attend to the same keys, each query attends to the
keys up to its own position, or neither. Keys that no query attends to, such as padding, are ignored.
"""


class Attention(Component):
    """An attention style; the base class is softmax attention with split heads.

    An experiment sets a style per role. The core builds one object per layer and role, and calls
    the hooks of a layer in this order:

    1. ``transform(q, k)``, then the encoding's ``rotate``
    2. ``scores(q, k, ...)``, then the encoding's ``score`` and ``bias`` are added
    3. ``mix_scores(scores)``, then masked entries are set to the mask value
    4. ``normalise(scores, mask)``
    5. ``mix(weights)``, then dropout, the product with the values, and the encoding's ``values``
    6. ``post_heads(heads)``, then the output projection

    Training uses torch's fused kernel as long as a style overrides at most ``geometry``,
    ``transform`` and ``post_heads``. A style that overrides ``scores``, ``mix_scores``,
    ``normalise``, ``mix`` or ``read`` trains on the explicit path, which computes the weights as a
    matrix, unless it also defines ``fast_path``. Attention maps always use the explicit path; the
    invariants verify that both paths agree.
    """

    hooks = (
        *("geometry", "transform", "scores", "mix_scores", "normalise"),
        *("mix", "fast_path", "post_heads", "read"),
    )

    weights: ClassVar[Literal["distribution", "positive", "signed"]] = "distribution"
    """What a row of weights is: a distribution, positive numbers, or numbers of either sign.

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

        Called during planning and when the model is built.

        Raises:
            HeadToHeadError: If the sizes are inconsistent. The message contains them.
        """
        if model.d_model % model.heads:
            raise HeadToHeadError(
                f"{cls.entry_name} needs d_model to be a multiple of heads, got {model.d_model} and {model.heads}"
            )
        width = model.d_model // model.heads
        return Geometry(model.heads, model.heads, width, width, width**-0.5)

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

    def scores(self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
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

    def fast_path(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern) -> Tensor:
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

    def post_heads(self, heads: Tensor) -> Tensor:
        """Return changed head outputs ``[member, batch, head, query, value width]``.

        Called before the heads are concatenated and projected.
        """
        return heads

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
