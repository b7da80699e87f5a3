"""Rectified linear units, the feed-forward network of the first Transformer.

Paper: A. Vaswani, N. Shazeer, N. Parmar, J. Uszkoreit, L. Jones, A. N. Gomez, L. Kaiser, I. Polosukhin. "Attention Is
All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.3.
"""

from torch import Tensor
from torch.nn import functional

from headtohead.plugin import FeedForward, hookimpl


class ReLU(FeedForward):
    """W_2 max(0, W_1 x)."""

    phrase = "ReLU"

    def activate(self, x: Tensor) -> Tensor:
        return functional.relu(x)

    def formula(self) -> str:
        return "f(H) = max(0, H)"


@hookimpl
def register_feed_forwards() -> dict[str, type[FeedForward]]:
    return {"relu": ReLU}
