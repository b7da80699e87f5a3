"""Talking heads: scores and weights are mixed across heads by trained matrices.

Paper: N. Shazeer et al. "Talking-Heads Attention", 2020, arXiv:2003.02436, section 5:
J = Q Kᵀ, L = J P_l, W = softmax(L), U = W P_w, where P_l and P_w act on the head axis. Encodings add
to the scores after P_l, as in the authors' code.
Departs from the paper: the number of heads is the same before, between and after both matrices.
Scores are scaled by d_k^(-1/2), which the authors include in the initial weights.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, hookimpl
from headtohead.plugin import Options as BaseOptions


class TalkingHeadsOptions(BaseOptions):
    """Initialisation of the two matrices."""

    start: Literal["identity", "random"] = Field(
        "identity",
        description="identity: starts as split heads; random: normal with variance 1/heads, as the authors",
    )


def mix_heads(x: Tensor, matrix: Tensor) -> Tensor:
    """Mix the heads of ``x [member, batch, from, query, key]`` by ``matrix [member, from, to]``."""
    return torch.einsum("mbfqk,mft->mbtqk", x, matrix)


class TalkingHeads(Attention):
    """Split heads with matrices ``[heads, heads]`` before and after the softmax."""

    phrase = "talking heads[ with a {start} start]"
    Options = TalkingHeadsOptions
    options: TalkingHeadsOptions
    weights = "signed"

    def build(self) -> None:
        heads = self.context.geometry.heads
        std = 0.0
        if self.options.start == "random":
            std = heads**-0.5
        self.before = self.parameter(heads, heads, std=std)
        self.after = self.parameter(heads, heads, std=std)
        if self.options.start == "identity":
            for matrix in (self.before, self.after):
                matrix.data.diagonal(dim1=1, dim2=2).fill_(1.0)

    def formula(self) -> str:
        return "L = (Q K^T / √d_k) P_l, A = softmax(L + B) P_w, across heads"

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        """Return scaled products, mixed by P_l."""
        products = q @ k.transpose(-2, -1)
        scaled = products * self.context.geometry.scale
        return mix_heads(scaled, self.before)

    def mix(self, weights: Tensor) -> Tensor:
        """Return weights mixed by P_w; they may be negative and need not sum to 1."""
        return mix_heads(weights, self.after)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"talking-heads": TalkingHeads}
