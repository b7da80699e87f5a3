"""The difference of two softmax maps, in which attention noise common to both cancels.

Paper: T. Ye et al. "Differential Transformer". ICLR 2025, arXiv:2410.05258, section 2.1:
(softmax(Q_1 K_1ᵀ/√d) - λ softmax(Q_2 K_2ᵀ/√d)) V, V of width 2d,
λ = exp(λ_q1 · λ_k1) - exp(λ_q2 · λ_k2) + λ_init, λ_init = 0.8 - 0.6 exp(-0.3 l) in layer l;
the output of a head is (1 - λ_init) · RMSNorm(head), with a gain of 2d numbers shared by all heads
(authors' code). d is the head width of split heads: there are half as many heads, each with two maps
and values of twice the width.
Departs from the paper: the paper has decoders only. Here l counts the layers of encoder and decoder
separately.
"""

import math

import torch
from torch import Tensor

from headtohead.plugin import Attention, Geometry, HeadToHeadError, ModelConfig, Options, hookimpl

EPS = 1e-5


def lambda_init(layer: int) -> float:
    """Return λ_init of a layer; layers start at 0.

    >>> round(lambda_init(0), 3), round(lambda_init(1), 3)
    (0.2, 0.356)
    """
    return 0.8 - 0.6 * math.exp(-0.3 * layer)


class Differential(Attention):
    """Head i is map 2i minus λ times map 2i + 1; its weights sum to 1 - λ and may be negative."""

    phrase = "differential attention"
    weights = "signed"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return ``heads`` maps of width d_model / heads, mixed into half as many heads."""
        maps = model.heads
        if model.d_model % maps or maps % 2:
            raise HeadToHeadError(
                "differential needs an even number of heads, and d_model to be a multiple of it, "
                f"got {maps} and {model.d_model}"
            )
        width = model.d_model // maps
        scale = width**-0.5
        return Geometry(maps, maps, width, 2 * width, scale, mixed_heads=maps // 2)

    def build(self) -> None:
        """Initialise the four vectors of λ normally (std 0.1) and the gain with 1."""
        geometry = self.context.geometry
        self.lambda_init = lambda_init(self.context.layer or 0)
        self.vectors = self.parameter(4, geometry.key_width, std=0.1)
        self.gain = self.parameter(geometry.value_width, std=0.0, mean=1.0)

    def formula(self) -> str:
        factor = f"{1 - self.lambda_init:.3g}"
        return f"A = softmax(S_{{2i}}) − λ softmax(S_{{2i+1}}); Z' = {factor} · Z / rms(Z) · γ"

    def lambda_(self) -> Tensor:
        """Return λ, ``[member]``."""
        q1, k1, q2, k2 = self.vectors.unbind(1)
        first = (q1 * k1).sum(-1).exp()
        second = (q2 * k2).sum(-1).exp()
        return first - second + self.lambda_init

    def mix(self, weights: Tensor) -> Tensor:
        """Subtract the second map of each pair from the first."""
        lambda_ = self.lambda_()[:, None, None, None, None]
        first = weights[:, :, 0::2]
        second = weights[:, :, 1::2]
        return first - lambda_ * second

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """Return (1 - λ_init) · RMSNorm of each head."""
        normalised = torch.rms_norm(heads, heads.shape[-1:], eps=EPS)
        gain = self.gain[:, None, None, None]
        return normalised * gain * (1 - self.lambda_init)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"differential": Differential}
