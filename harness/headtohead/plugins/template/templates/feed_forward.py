"""A feed-forward network with the activation h · tanh(softplus(h)).

Paper: authors, "title", venue, arXiv number, section: W_2 f(W_1 x), f(h) = h · tanh(ln(1 + e^h)).
Departs from the paper: nothing.
"""

from torch import Tensor
from torch.nn.functional import softplus

from headtohead.plugin import FeedForward, hookimpl


class MyIdea(FeedForward):
    """W_2 f(W_1 x); with ``gated = True``, W_2 (f(W_1 x) * W_3 x)."""

    def formula(self) -> str:
        """Return the formula of the activation."""
        return "f(H) = H · tanh(ln(1 + e^H))"

    def activate(self, x: Tensor) -> Tensor:
        """Return the activation of the inner numbers, ``[member, tokens, d_ff]``."""
        return x * softplus(x).tanh()


@hookimpl
def register_feed_forwards() -> dict[str, type[FeedForward]]:
    return {"my-idea": MyIdea}
