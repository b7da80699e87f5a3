"""Dynamic Tanh: a squashing function of each coordinate in place of a norm; no statistics of the token are computed.

Paper: J. Zhu, X. Chen, K. He, Y. LeCun, Z. Liu. "Transformers without Normalization". CVPR 2025, arXiv:2503.10622,
section 4: γ · tanh(αx) + β, with one trained α per layer that starts at 0.5.
Departs from the paper: in language models, the paper starts α at values that depend on width and position, and scales
the embeddings by a trained number; neither is implemented.
"""

from torch import Tensor

from headtohead.plugin import Fixed, Norm, hookimpl


class DynamicTanh(Norm):
    """tanh(αx), times a gain, plus a bias; α is trained."""

    phrase = "dynamic tanh"
    has_bias = True

    def build(self) -> None:
        super().build()
        self.alpha = self.parameter(1, 1, init=Fixed(0.5))

    def normalise(self, x: Tensor) -> Tensor:
        return (self.alpha * x).tanh()

    def formula(self) -> str:
        if self.bias is None:
            return "tanh(αx) · γ"
        return "tanh(αx) · γ + β"


@hookimpl
def register_norms() -> dict[str, type[Norm]]:
    return {"dynamic-tanh": DynamicTanh}
