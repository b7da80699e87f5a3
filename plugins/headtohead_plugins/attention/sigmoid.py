"""A sigmoid of each score instead of the softmax of a row.

Paper: J. Ramapuram et al. "Theory, Analysis, and Best Practices for Sigmoid Self-Attention".
ICLR 2025, arXiv:2409.04431, section 2: sigmoid(Q Kᵀ / √d_k + b) V with b = -log(n).
n is the number of keys that the query attends to, so that outputs do not depend on padding.
Departs from the paper: there, n is the length of the sequence, in a decoder too. A masked weight is 0
under every mask value, also in a row without keys.
"""

import math

import torch
from torch import Tensor

from headtohead.plugin import Attention, hookimpl


class Sigmoid(Attention):
    """Split heads with weights between 0 and 1 that do not sum to 1."""

    phrase = "sigmoid attention"
    weights = "positive"

    def formula(self) -> str:
        return "A = 1 / (1 + n e^{−S}), n: keys that the query attends to"

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return sigmoid(score - log n)."""
        if mask is None:
            return torch.sigmoid(scores - math.log(scores.shape[-1]))
        n = mask.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
        return torch.sigmoid(scores - n.log())


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"sigmoid": Sigmoid}
