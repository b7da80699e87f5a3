"""Heads that talk: scores, and then weights, are mixed across heads by learned matrices.

Paper: N. Shazeer et al. "Talking-Heads Attention", 2020, arXiv:2003.02436, section 5:
J = Q Kᵀ, L = J P_l, W = softmax(L), U = W P_w, with P_l and P_w acting on the axis of heads.
Positions add to scores behind P_l, as in the authors' code.
Departs from the paper: as many heads before, between and behind the two; scores are scaled by
d_k^(-1/2), which the authors put into the initial weights.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import Attention, Cost, hookimpl
from headtohead import Options as BaseOptions


class TalkingHeadsOptions(BaseOptions):
    """Where the two matrices start."""

    start: Literal["identity", "random"] = Field(
        "identity", description="identity: as split heads; random: normal with variance 1/heads (the authors')"
    )


def across(x: Tensor, heads: Tensor) -> Tensor:
    """Mix ``x [member, batch, from, query, key]`` by ``[member, from, to]``."""
    return torch.einsum("mbfqk,mft->mbtqk", x, heads)


class TalkingHeads(Attention):
    """Split heads with a matrix ``[heads, heads]`` before the softmax, and one behind it."""

    Options = TalkingHeadsOptions
    options: TalkingHeadsOptions
    cost = Cost(parameters="4*d**2 + 2*h**2", biases="4*d", flops="4*n**2*h**2 + 4*n**2*d + 8*n*d**2")
    weights = "signed"

    def build(self) -> None:
        """Make both matrices."""
        heads = self.context.geometry.heads
        random = self.options.start == "random"
        self.before, self.behind = (self.parameter(heads, heads, std=heads**-0.5 if random else 0.0) for _ in range(2))
        if not random:
            for matrix in (self.before, self.behind):
                matrix.data.diagonal(dim1=1, dim2=2).fill_(1.0)

    @classmethod
    def parameter_count(cls, options, context) -> int:  # type: ignore[no-untyped-def]
        """Return two squares of heads."""
        return int(2 * context.geometry.heads**2)

    def formula(self) -> str:
        """Return both mixtures."""
        return "L = (Q K^T / √d_k) P_l, A = softmax(L + B) P_w, across heads"

    def scores(self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Return scaled products, mixed."""
        return across(q @ k.transpose(-2, -1) * self.context.geometry.scale, self.before)

    def mix(self, weights: Tensor) -> Tensor:
        """Return the mixed weights, which may be negative and need not sum to one."""
        return across(weights, self.behind)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``talking-heads``."""
    return {"talking-heads": TalkingHeads}
