"""Layer normalisation: mean 0 and variance 1 over the coordinates of each token.

Paper: J. L. Ba, J. R. Kiros, G. E. Hinton. "Layer Normalization", 2016, arXiv:1607.06450, section 3.1.
"""

import torch
from torch import Tensor

from headtohead.plugin import Norm, hookimpl


class LayerNorm(Norm):
    """(x − μ) / √(σ² + ε), times a gain, plus a bias."""

    phrase = "LayerNorm"
    properties = frozenset({"scale-invariant", "shift-invariant"})
    has_bias = True

    def normalise(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, x.shape[-1:], eps=self.context.model.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Compute gain and bias in the kernel where all tokens have the same ones."""
        if len(self.weight) > 1:
            return super().forward(x)
        gain = self.weight.view(-1)
        bias = None
        if self.bias is not None:
            bias = self.bias.view(-1)
        return torch.layer_norm(x, x.shape[-1:], gain, bias, self.context.model.norm_eps)

    def formula(self) -> str:
        if self.bias is None:
            return "(x − μ) / √(σ^2 + ε) · γ"
        return "(x − μ) / √(σ^2 + ε) · γ + β"


@hookimpl
def register_norms() -> dict[str, type[Norm]]:
    return {"layernorm": LayerNorm}
