"""A gate that depends on the query's token multiplies the outputs of the heads.

Paper: Z. Qiu et al. "Gated Attention for Large Language Models: Non-linearity, Sparsity, and
Attention-Sink-Free". NeurIPS 2025, arXiv:2505.06708, section 2.2, position G1: Z' = Z ⊙ σ(X W), before
the output projection, with a gate per element of every head, or per head. X is the input of the
queries' projection. W has no bias and is initialised normally with variance 1 / d_model.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, HeadOptions, hookimpl


class GatedOptions(HeadOptions):
    """Number of gates, and key/value heads."""

    per: Literal["element", "head"] = Field(
        "element", description="element: a gate per element; head: one per head"
    )


class Gated(Attention):
    """Split heads with a sigmoid gate on the output of each head, or on each of its elements."""

    Options = GatedOptions
    options: GatedOptions

    def build(self) -> None:
        geometry, d_model = self.context.geometry, self.context.d_model
        self.width = geometry.value_width if self.options.per == "element" else 1
        self.gate = self.parameter(d_model, geometry.heads * self.width, std=d_model**-0.5)

    def formula(self) -> str:
        return "Z' = Z ⊙ σ(X W_g)" if self.options.per == "element" else "Z'_h = Z_h · σ(X w_h)"

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """Multiply the outputs by the gates of their queries."""
        gates = (x.flatten(1, 2) @ self.gate).sigmoid().view(*x.shape[:3], -1, self.width)
        return heads * gates.transpose(2, 3)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"gated": Gated}
