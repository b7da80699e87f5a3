"""A linear map gated by the GELU of another one, as in Gemma.

Paper: N. Shazeer. "GLU Variants Improve Transformer", 2020, arXiv:2002.05202, section 2, equation 6.
Departs from the paper: as ``swiglu``; Gemma uses the approximation of GELU by tanh, which differs by less than 0.001.
"""

from torch import Tensor
from torch.nn import functional

from headtohead.plugin import FeedForward, hookimpl


class GEGLU(FeedForward):
    """W_2 (gelu(W_1 x) * W_3 x), where gelu(x) = x Φ(x)."""

    phrase = "GEGLU"
    gated = True

    def activate(self, x: Tensor) -> Tensor:
        return functional.gelu(x)

    def formula(self) -> str:
        return "f(H) = H · Φ(H)"


@hookimpl
def register_feed_forwards() -> dict[str, type[FeedForward]]:
    return {"geglu": GEGLU}
