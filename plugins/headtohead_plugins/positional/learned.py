"""A trained vector per position, added to the embeddings.

Paper: J. Gehring et al. "Convolutional Sequence to Sequence Learning". ICML 2017,
arXiv:1705.03122, section 3.1; compared with sinusoids in Vaswani et al. 2017, table 3 row E.
Departs from the paper: a position beyond the table is an error, never a clamp.
"""

from pydantic import Field
from torch import Tensor

from headtohead import HeadToHeadError, Positional, Setting, hookimpl
from headtohead import Options as BaseOptions


class LearnedOptions(BaseOptions):
    """Size and start of the table."""

    max_length: int = Field(
        128, ge=1, description="positions in the table, boundary tokens counted"
    )
    std: float = Field(0.02, gt=0, description="standard deviation of the initial table")


class Learned(Positional):
    """A trained table ``[max_length, d_model]`` for each of encoder and decoder."""

    Options = LearnedOptions
    options: LearnedOptions

    def build(self) -> None:
        """Draw the table."""
        shape = (self.options.max_length, self.context.d_model)
        self.table = self.parameter(*shape, std=self.options.std)

    @classmethod
    def limit(cls, options: BaseOptions) -> int:
        """Return the size of the table."""
        assert isinstance(options, LearnedOptions)
        return options.max_length

    @classmethod
    def parameter_count(cls, options, context) -> int:  # type: ignore[no-untyped-def]
        """Return max_length · d_model."""
        return int(options.max_length * context.d_model)

    @classmethod
    def undefined_for(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse cross-attention, which has no embeddings, and data longer than the table."""
        if setting.role == "cross":
            return "learned adds to embeddings, which cross-attention has none of; use 'none'"
        side = "source" if setting.role == "encoder" else "target"
        longest = setting.longest.get(side, 0)
        limit = cls.limit(options)
        if longest > limit:
            return (
                f"a {side} of {longest} tokens is longer than the learned table of {limit}; "
                f"set positional.{setting.role}.max_length to at least {longest}"
            )
        return None

    def formula(self) -> str:
        """Return where the numbers come from."""
        return "P[p]: row p of a trained table, p: place in the sentence"

    def embed(self, positions: Tensor, role: str) -> Tensor:
        """Look the positions up, ``[member, batch or 1, time, d_model]``."""
        # Positions always start at 0 and grow, so the largest is last: no read of the tensor's
        # values is needed for a full pass, and none waits for the device.
        if positions.shape[-1] > self.table.shape[1]:
            raise HeadToHeadError(
                f"position {positions.shape[-1]} is beyond the learned table of "
                f"{self.table.shape[1]}; set positional.{role}.max_length higher"
            )
        return self.table[:, positions]


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``learned``."""
    return {"learned": Learned}
