"""A penalty that grows with a root of the distance, as strong as each head of each layer learns.

Paper: authors, "title", venue, arXiv number, section: -s · |i - j|^exponent, s > 0.
Departs from the paper: nothing.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from headtohead import BuildContext, Cost, Positional, hookimpl
from headtohead import Options as BaseOptions


class MyIdeaOptions(BaseOptions):
    """The shape of the penalty."""

    exponent: float = Field(0.5, gt=0, le=1, description="power of the distance; 1 is a line")


class MyIdea(Positional):
    """A root of the distance, subtracted from the scores."""

    Options = MyIdeaOptions
    options: MyIdeaOptions
    cost = Cost(parameters="L*h")
    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def build(self) -> None:
        """Draw one number per layer and head, ``[member, layer, head]``."""
        self.raw = self.parameter(self.context.layers, self.context.geometry.heads)

    @classmethod
    def parameter_count(cls, options: BaseOptions, context: BuildContext) -> int:
        """Return layers · heads."""
        return context.layers * context.geometry.heads

    def formula(self) -> str:
        """Return the penalty."""
        return f"B[i, j] = −s_h · |i − j|^{{{self.options.exponent:g}}}, s_h > 0 learned"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return what is added to the scores, ``[member, batch or 1, head, query, key]``."""
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs().to(self.raw)
        strength = softplus(self.raw[:, None, layer, :, None, None])
        return -strength * torch.pow(distance, self.options.exponent)[:, None]


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``my-idea``."""
    return {"my-idea": MyIdea}
