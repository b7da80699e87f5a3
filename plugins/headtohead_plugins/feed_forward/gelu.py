"""Gaussian error linear units, as in GPT-2 and BERT.

Paper: D. Hendrycks, K. Gimpel. "Gaussian Error Linear Units (GELUs)", 2016, arXiv:1606.08415, section 2.
Departs from the paper: nothing; GPT-2 uses its approximation by tanh, which differs by less than 0.001.
"""

from torch import Tensor
from torch.nn import functional

from headtohead.plugin import FeedForward, hookimpl


class GELU(FeedForward):
    """W_2 gelu(W_1 x), where gelu(x) = x Φ(x) with the normal distribution function Φ."""

    phrase = "GELU"

    def activate(self, x: Tensor) -> Tensor:
        return functional.gelu(x)

    def formula(self) -> str:
        return "f(H) = H · Φ(H)"


@hookimpl
def register_feed_forwards() -> dict[str, type[FeedForward]]:
    return {"gelu": GELU}
