"""Squared rectified linear units.

Paper: D. R. So, W. Mańke, H. Liu, Z. Dai, N. Shazeer, Q. V. Le. "Primer: Searching for Efficient Transformers for
Language Modeling". NeurIPS 2021, arXiv:2109.08668, section 4.1.
"""

from torch import Tensor
from torch.nn import functional

from headtohead.plugin import FeedForward, hookimpl


class SquaredReLU(FeedForward):
    """W_2 max(0, W_1 x)²."""

    phrase = "ReLU squared"

    def activate(self, x: Tensor) -> Tensor:
        return functional.relu(x).square()

    def formula(self) -> str:
        return "f(H) = max(0, H)^2"


@hookimpl
def register_feed_forwards() -> dict[str, type[FeedForward]]:
    return {"relu2": SquaredReLU}
