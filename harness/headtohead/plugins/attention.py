"""Attention styles: the geometry of the heads and, if it is not plain softmax, the mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor

from headtohead.errors import HeadToHeadError
from headtohead.plugins.entry import Options
from headtohead.plugins.positional import Geometry, Part

if TYPE_CHECKING:
    from headtohead.schema.run_config import ModelConfig


MaskPattern = Literal["same", "prefix", "other"]
"""What a mask comes to: all queries see the same keys, each those up to its own place, or else.

Keys that no query sees, padding for one, do not count.
"""


class Attention(Part):
    """An attention style, set per role; one object per layer and role.

    One that says nothing is split heads. A style that overrides ``scores``, ``mix_scores``,
    ``normalise``, ``mix`` or ``read`` trains on the explicit path, unless it has a ``fast_path``;
    ``transform`` and ``finish`` keep the fused one.
    """

    weights: ClassVar[Literal["distribution", "positive", "signed"]] = "distribution"
    """What a row of weights is: positive and of sum one, positive, or of either sign.

    The invariants hold a style to it, and maps of signed weights get a scale with two colours.
    """

    position_dependent: ClassVar[bool] = False
    """Whether scores depend on positions without any encoding."""

    map_note: ClassVar[str] = ""
    """How its maps are made, of a style that trains without a matrix of weights; a few words."""

    projects: ClassVar[bool] = True
    """Whether queries, keys, values and what the heads read are projected.

    A style that says no has none of these weights and defines ``read`` in their place; its heads,
    one after another, are as wide as the model. It has no cached decoding, and encodings cannot
    turn its queries or add to its scores.
    """

    temperature: ClassVar[float | None] = 1.0
    """Standard deviation of the scores of random queries and keys with unit variance.

    The invariants hold styles to it whose scores are products; None for one that drops the scale.
    """

    unsupported: ClassVar[Mapping[str, str]] = {}
    """Ways of encodings to act (``MECHANISMS``) that mean nothing here, each with the reason.

    A reason continues the name of the encoding: "acts on ..., which ... never makes". What follows
    from ``projects``, ``position_dependent`` and a geometry without keys is refused without being named.
    """

    known_violations: ClassVar[frozenset[str]] = frozenset()
    """Names of invariants that the style breaks, and is kept all the same: their verdicts name it.

    For styles that somebody has published or taught; an honest mistake has none.
    """

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads and widths: if nothing else is said, heads of width d_model / heads.

        Raises:
            HeadToHeadError: If the numbers do not fit, naming them.
        """
        if model.d_model % model.heads:
            raise HeadToHeadError(
                f"{cls.entry_name} needs d_model to be a multiple of heads, got {model.d_model} and {model.heads}"
            )
        width = model.d_model // model.heads
        return Geometry(model.heads, model.heads, width, width, width**-0.5)

    @classmethod
    def only_length(cls, options: Options, model: ModelConfig) -> int | None:
        """Return the one number of tokens that a decoder of this style reads, None if any."""
        return None

    def read(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return scores, already masked, and values, of a style that projects nothing.

        Args:
            x: What asks, ``[member, batch, query, d_model]``.
            memory: What is asked, ``[member, batch, key, d_model]``; ``x`` in self-attention.
            keep: ``[member, batch or 1, 1, query, key]``, or None where nothing is masked.

        Returns:
            ``[member, batch, head, query, key]`` and ``[member, batch, head, key, width]``.
        """
        raise NotImplementedError

    def scores(self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return scores ``[member, batch or 1, head, query, key]``, before positions add to them.

        Positions are as those of an encoding, ``[1, time]``.
        """
        return q @ k.transpose(-2, -1) * self.context.geometry.scale

    def mix_scores(self, scores: Tensor) -> Tensor:
        """Change scores after positions acted and before masking, for example across heads."""
        return scores

    def fast_path(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pattern: MaskPattern) -> Tensor:
        """Return what the heads read, ``[member, batch, head, query, width]``, without any weights.

        For a style whose weights need not be computed to train. It must equal the explicit path,
        which still gives the maps; where attention weights are dropped out, or an encoding acts on
        scores or values, that path is taken. ``keep`` is None where nothing is masked, and
        ``shows`` says what it comes to.
        """
        raise NotImplementedError

    def post_heads(self, heads: Tensor) -> Tensor:
        """Change what the heads read, ``[member, batch, head, query, width]``, before output."""
        return heads

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Change queries and keys, ``[member, batch, head, time, width]``, before positions act."""
        return q, k

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Turn filled scores ``[member, batch, head, query, key]`` into weights of equal shape.

        A row whose scores are all -inf gives weights of zero, as the fused path does.
        """
        if mask is None:
            return torch.softmax(scores, dim=-1)
        # softmax of such a row is NaN, and so is its gradient even where nothing flows back.
        dead = (scores == -torch.inf).all(dim=-1, keepdim=True)
        return torch.softmax(scores.masked_fill(dead, 0.0), dim=-1).masked_fill(dead, 0.0)

    def mix(self, weights: Tensor) -> Tensor:
        """Change the weights after normalisation, for example across heads.

        May leave fewer heads, as many as ``mixed_heads`` of the geometry.
        """
        return weights
