"""A trained vector per position, added to the embeddings.

Paper: J. Gehring et al. "Convolutional Sequence to Sequence Learning". ICML 2017,
arXiv:1705.03122, section 3.1. A. Vaswani et al. 2017, table 3 row E, compare it with sinusoids.
Departs from the paper: a position beyond the table is an error and is not clamped.
"""

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl


class LearnedOptions(BaseOptions):
    """Size and initialisation of the table."""

    max_length: int = Field(
        128,
        ge=1,
        le=100_000,
        description="rows of the table: tokens of the longest sentence, with boundary tokens",
    )
    std: float = Field(0.02, gt=0, le=1000, description="standard deviation of the initial table")


class Learned(Positional):
    """A trained vector per position, added to the embeddings.

    Each role has a table ``[max_length, d_model]``.
    """

    phrase = "learned positions[ for {max_length} tokens][ with deviation {std}]"
    Options = LearnedOptions
    options: LearnedOptions

    def build(self) -> None:
        shape = (self.options.max_length, self.context.d_model)
        self.table = self.parameter(*shape, std=self.options.std)

    def formula(self) -> str:
        return "P[p]: row p of a trained table, p: position in the sentence"

    def embed(self, positions: Tensor, role: str) -> Tensor:
        """Return the rows of the positions, ``[member, batch or 1, time, d_model]``."""
        return self.table[:, positions]


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"learned": Learned}
