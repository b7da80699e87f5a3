"""Feed-forward networks: the second sublayer of a layer, which acts on each token alone."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from headtohead.plugins.component import Component


class FeedForward(Component):
    """The network ``W_2 f(W_1 x)``, or ``W_2 (f(W_1 x) * W_3 x)`` if it is gated; override ``activate``, which is f.

    The core provides the linear maps with their biases, and drops out the input of ``W_2``. It builds one
    object per layer; ``context.model.d_ff`` is the inner width.
    """

    hooks = ("activate",)

    gated: ClassVar[bool] = False
    """Whether a second map of the input, ``W_3 x``, multiplies the activation."""

    def activate(self, x: Tensor) -> Tensor:
        """Return the activation of every number of the first map.

        Args:
            x: ``[member, tokens, d_ff]``, the tokens of a batch concatenated, padding included.

        Returns:
            A tensor of the shape and dtype of ``x``. A token's row depends on this token alone.
        """
        raise NotImplementedError
