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

    phrase = "with a gated output[ per {per}]"
    Options = GatedOptions
    options: GatedOptions

    def build(self) -> None:
        geometry = self.context.geometry
        d_model = self.context.d_model
        self.width = 1
        if self.options.per == "element":
            self.width = geometry.value_width
        gates = geometry.heads * self.width
        self.gate = self.parameter(d_model, gates, std=d_model**-0.5)

    def formula(self) -> str:
        if self.options.per == "element":
            return "Z' = Z ⊙ σ(X W_g)"
        return "Z'_h = Z_h · σ(X w_h)"

    def post_heads(self, heads: Tensor, x: Tensor, values: Tensor) -> Tensor:
        """Multiply the outputs by the gates of their queries."""
        tokens = x.flatten(1, 2)
        gates = (tokens @ self.gate).sigmoid()
        gates_by_head = gates.view(*x.shape[:3], -1, self.width).transpose(2, 3)
        return heads * gates_by_head


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"gated": Gated}
