"""Attention styles: the geometry of the heads and, if it is not plain softmax, the mathematics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from headtohead.families.entry import Options
from headtohead.families.positional import Geometry, Part

if TYPE_CHECKING:
    from headtohead.experiment.schema import ModelConfig


class Attention(Part):
    """An attention style, set per role; one object per layer and role.

    Only ``geometry`` is required. A style that overrides ``normalise`` or ``mix`` trains on the
    explicit path; ``transform`` alone keeps the fused one.
    """

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads and widths.

        Raises:
            HeadToHeadError: If the numbers do not fit, naming them.
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
