"""Norms: the normalisation of each token before or after the sublayers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from headtohead.plugins.component import Component, require_like


class Norm(Component):
    """A norm with a gain per coordinate, and a bias if ``has_bias``; override ``normalise``.

    The core builds one object per position; ``model.norm`` selects the positions. ``context.model.norm_eps`` is
    the number that keeps a token of zeros finite.
    """

    hooks = ("normalise",)
    known_properties = frozenset({"scale-invariant", "shift-invariant"})

    properties: ClassVar[frozenset[str]] = frozenset()
    """Declared properties, which the invariants verify for tokens with large numbers, where ``norm_eps`` is negligible.

    - ``scale-invariant``: a token times a positive number has the same output.
    - ``shift-invariant``: a token plus a number has the same output.
    """

    has_bias: ClassVar[bool] = False
    """Whether there is a bias, unless ``model.bias`` is false."""

    def build(self) -> None:
        """Create ``weight``, the gain, as ones, and ``bias`` as zeros or None, both ``[member, 1, d_model]``."""
        width = self.context.d_model
        # Numbers from the generator would change the weights that are initialised afterwards.
        self.weight = self.parameter(1, width, init=lambda out, generator: out.fill_(1.0))
        self.bias = None
        if self.has_bias and self.context.model.bias:
            self.bias = self.parameter(1, width, init=lambda out, generator: out.zero_())

    def normalise(self, x: Tensor) -> Tensor:
        """Return the normalised tokens before gain and bias.

        Args:
            x: ``[member, tokens, d_model]``, the tokens of a batch concatenated, padding included.

        Returns:
            A tensor of the shape and dtype of ``x``. A token's row depends on this token alone.
        """
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised tokens times the gain, plus the bias."""
        normed = self.normalise(x)
        require_like(self, "normalise", normed, x, "member tokens d_model")
        if self.bias is None:
            return normed * self.weight
        return torch.addcmul(self.bias, normed, self.weight)
