"""Each weight on its own: a sigmoid in the place of the softmax, over no row.

Paper: J. Ramapuram et al. "Theory, Analysis, and Best Practices for Sigmoid Self-Attention".
ICLR 2025, arXiv:2409.04431, section 2: sigmoid(Q Kᵀ / √d_k + b) V with b = -log(n).
n is the number of keys that the query may see, so that padding and batch do not count.
Departs from the paper: it takes the length of the sequence for n, in a decoder too. A masked weight
is 0 under every fill, also in a row that has no key.
"""

import math

import torch
from torch import Tensor

from headtohead import Attention, Cost, hookimpl


class Sigmoid(Attention):
    """Split heads whose weights lie between 0 and 1 and sum to no fixed number."""

    cost = Cost(parameters="4*d**2", biases="4*d", flops="4*n**2*d + 8*n*d**2")
    weights = "positive"

    def formula(self) -> str:
        """Return the weight of one key."""
        return "A = 1 / (1 + n e^{−S}), n: keys that the query may see"

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Return sigmoid(score - log n); masked ones are as good as -inf under every fill."""
        if mask is None:
            return torch.sigmoid(scores - math.log(scores.shape[-1]))
        seen = mask.sum(-1, keepdim=True).clamp(min=1).to(scores.dtype)
        return torch.sigmoid(scores - seen.log())


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``sigmoid``."""
    return {"sigmoid": Sigmoid}
