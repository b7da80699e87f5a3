"""The difference of two softmaxes: what both attend to cancels.

Paper: T. Ye et al. "Differential Transformer". ICLR 2025, arXiv:2410.05258, section 2.1:
(softmax(Q_1 K_1ᵀ/√d) - λ softmax(Q_2 K_2ᵀ/√d)) V, V of width 2d,
λ = exp(λ_q1 · λ_k1) - exp(λ_q2 · λ_k2) + λ_init, λ_init = 0.8 - 0.6 exp(-0.3 l) in layer l;
each head is then (1 - λ_init) · RMSNorm(head), with one gain of 2d numbers for all (authors' code).
d is the head width of split heads: half as many heads read, with two maps and values twice as wide.
Departs from the paper: it has decoders alone; here l counts the layers of encoder and decoder each.
"""

import math

import torch
from torch import Tensor

from headtohead import Attention, Cost, Geometry, HeadToHeadError, ModelConfig, Options, hookimpl

EPS = 1e-5


def initial_share(layer: int) -> float:
    """Return λ_init of a layer, counted from 0.

    >>> round(initial_share(0), 3), round(initial_share(1), 3)
    (0.2, 0.356)
    """
    return 0.8 - 0.6 * math.exp(-0.3 * layer)


class Differential(Attention):
    """Maps 2i and 2i + 1 make head i, whose weights may be negative and sum to 1 - λ."""

    cost = Cost(parameters="4*d**2 + 6*d/h", biases="4*d", flops="4*n**2*d + 8*n*d**2")
    weights = "signed"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return ``heads`` maps of width d_model / heads, for half as many heads that read."""
        if model.d_model % model.heads or model.heads % 2:
            raise HeadToHeadError(
                "differential needs an even number of heads, and d_model to be a multiple of it, "
                f"got {model.heads} and {model.d_model}"
            )
        width = model.d_model // model.heads
        scale = width**-0.5
        return Geometry(model.heads, model.heads, width, 2 * width, scale, mixed_heads=model.heads // 2)

    def build(self) -> None:
        """Draw the four vectors of λ, and make the gain."""
        geometry = self.context.geometry
        self.start = initial_share(self.context.layer or 0)
        self.vectors = self.parameter(4, geometry.key_width, std=0.1)
        self.gain = self.parameter(geometry.value_width, std=0.0, mean=1.0)

    @classmethod
    def parameter_count(cls, options, context) -> int:  # type: ignore[no-untyped-def]
        """Return 4 d for λ and 2 d for the gain."""
        return int(4 * context.geometry.key_width + context.geometry.value_width)

    def formula(self) -> str:
        """Return the weights of a head, and what becomes of what it reads."""
        left = f"{1 - self.start:.3g}"
        return f"A = softmax(S_{{2i}}) − λ softmax(S_{{2i+1}}); Z' = {left} · Z / rms(Z) · γ"

    def share(self) -> Tensor:
        """Return λ, ``[member]``."""
        q1, k1, q2, k2 = self.vectors.unbind(1)
        return (q1 * k1).sum(-1).exp() - (q2 * k2).sum(-1).exp() + self.start

    def mix(self, weights: Tensor) -> Tensor:
        """Subtract the second map of each pair from the first."""
        taken = self.share()[:, None, None, None, None] * weights[:, :, 1::2]
        return weights[:, :, 0::2] - taken

    def post_heads(self, heads: Tensor) -> Tensor:
        """Bring each head to root mean square 1, times the gain and 1 - λ_init."""
        size = torch.rsqrt(heads.square().mean(-1, keepdim=True) + EPS)
        return heads * size * self.gain[:, None, None, None] * (1 - self.start)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``differential``."""
    return {"differential": Differential}
