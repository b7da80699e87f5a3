"""Attention styles: the geometry of the heads and, if it is not plain softmax, the mathematics."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from headtohead.families.entry import Options
from headtohead.families.positional import Geometry, Part, Positional

if TYPE_CHECKING:
    from headtohead.experiment.schema import ModelConfig


class Attention(Part):
    """An attention style, set per role; one object per layer and role.

    Only ``geometry`` is required. A style that overrides ``normalise``, ``mix`` or ``read`` trains
    on the explicit path; ``transform`` alone keeps the fused one.
    """

    projects: ClassVar[bool] = True
    """Whether queries, keys, values and what the heads read are projected.

    A style that says no has none of these weights and defines ``read`` in their place; its heads,
    one after another, are as wide as the model. It has no cached decoding, and encodings cannot
    turn its queries or add to its scores.
    """

    breaks: ClassVar[frozenset[str]] = frozenset()
    """Names of invariants that the style breaks, and is kept all the same: their verdicts name it.

    For styles that somebody has published or taught; an honest mistake has none.
    """

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads and widths.

        Raises:
            HeadToHeadError: If the numbers do not fit, naming them.
        """
        raise NotImplementedError

    @classmethod
    def only_length(cls, options: Options, model: ModelConfig) -> int | None:
        """Return the one number of tokens that a decoder of this style reads, None if any."""
        return None

    @classmethod
    def refusal(cls, encoding: type[Positional]) -> str | None:
        """Return why an encoding cannot act here, or None."""
        acts = any(
            getattr(encoding, name) is not getattr(Positional, name)
            for name in ("rotate", "bias", "score", "values")
        )
        if cls.projects or not acts:
            return None
        return (
            f"{encoding.__name__} acts on queries, keys or scores, and {cls.__name__} attention "
            "projects none; use an encoding that is added to embeddings, or 'none'"
        )

    def read(self, x: Tensor, memory: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return scores, already masked, and values, of a style that projects nothing.

        Args:
            x: What asks, ``[member, batch, query, d_model]``.
            memory: What is asked, ``[member, batch, key, d_model]``; ``x`` in self-attention.
            keep: ``[member, batch or 1, 1, query, key]``, or None where nothing is masked.

        Returns:
            ``[member, batch, head, query, key]`` and ``[member, batch, head, key, width]``.
        """
        raise NotImplementedError

    def transform(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Change queries and keys, ``[member, batch, head, time, width]``, before positions act."""
        return q, k

    def normalise(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        """Turn filled scores ``[member, batch, head, query, key]`` into weights of equal shape.

        A row whose scores are all -inf gives weights of zero, as the fused path does.
        """
        if keep is None:
            return torch.softmax(scores, dim=-1)
        # softmax of such a row is NaN, and so is its gradient even where nothing flows back.
        dead = (scores == -torch.inf).all(dim=-1, keepdim=True)
        return torch.softmax(scores.masked_fill(dead, 0.0), dim=-1).masked_fill(dead, 0.0)

    def mix(self, weights: Tensor) -> Tensor:
        """Change the weights after normalisation, for example across heads."""
        return weights
