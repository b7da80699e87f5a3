"""Root mean square normalisation, as in Llama: no mean is subtracted, and there is no bias.

Paper: B. Zhang, R. Sennrich. "Root Mean Square Layer Normalization". NeurIPS 2019, arXiv:1910.07467, section 3,
equation 4.
"""

import torch
from torch import Tensor

from headtohead.plugin import Norm, hookimpl


class RMSNorm(Norm):
    """x / √(mean(x²) + ε), times a gain."""

    phrase = "RMSNorm"
    properties = frozenset({"scale-invariant"})

    def normalise(self, x: Tensor) -> Tensor:
        return torch.rms_norm(x, x.shape[-1:], eps=self.context.model.norm_eps)

    def formula(self) -> str:
        return "x / √(mean(x^2) + ε) · γ"


@hookimpl
def register_norms() -> dict[str, type[Norm]]:
    return {"rmsnorm": RMSNorm}
