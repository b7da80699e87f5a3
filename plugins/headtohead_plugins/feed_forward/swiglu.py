"""A linear map gated by the SiLU of another one, as in Llama.

Paper: N. Shazeer. "GLU Variants Improve Transformer", 2020, arXiv:2002.05202, section 2, equation 6.
Departs from the paper: maps have biases unless ``model.bias`` is false, and ``model.d_ff`` is the width of the three
maps. Two thirds of the d_ff of an ungated network give the same number of weights; ``match: parameters`` finds it.
"""

from torch import Tensor
from torch.nn import functional

from headtohead.plugin import FeedForward, hookimpl


class SwiGLU(FeedForward):
    """W_2 (silu(W_1 x) * W_3 x), where silu(x) = x / (1 + exp(-x))."""

    phrase = "SwiGLU"
    gated = True

    def activate(self, x: Tensor) -> Tensor:
        return functional.silu(x)

    def formula(self) -> str:
        return "f(H) = H / (1 + e^{−H})"


@hookimpl
def register_feed_forwards() -> dict[str, type[FeedForward]]:
    return {"swiglu": SwiGLU}
