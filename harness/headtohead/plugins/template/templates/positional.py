"""A bias on attention scores that falls with a power of the distance.

Paper: authors, "title", venue, arXiv number, section: -s · |i - j|^exponent, s > 0.
Departs from the paper: nothing.
"""

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl


class MyIdeaOptions(BaseOptions):
    """Options of ``my-idea``."""

    exponent: float = Field(0.5, gt=0, le=1, description="power of the distance; 1 is linear")


class MyIdea(Positional):
    """A bias -s · |i - j|^exponent with a learned slope s for each head of each layer."""

    Options = MyIdeaOptions
    options: MyIdeaOptions
    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def build(self) -> None:
        """Create the slopes before softplus, ``[member, layer, head]``."""
        self.raw_slope = self.parameter(self.context.layers, self.context.geometry.heads)

    def formula(self) -> str:
        """Return the formula of the bias."""
        return f"B[i, j] = −s_h · |i − j|^{{{self.options.exponent:g}}}, s_h > 0 learned"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the values added to the scores, ``[member, batch or 1, head, query, key]``."""
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs().to(self.raw_slope)
        slope = softplus(self.raw_slope[:, None, layer, :, None, None])
        return -slope * torch.pow(distance, self.options.exponent)[:, None]


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"my-idea": MyIdea}
