"""Sinusoids of the row of a sentence in its batch, added to the embeddings of all its tokens.

Source: notebook 3, positional encoding of encoder and decoder: a table ``[rows, 1, width]`` is added to embeddings
``[batch, time, width]``, so the row of the batch selects the vector instead of the position of the token. The encoder
is then a bag of words.
"""

from pydantic import Field

from headtohead.plugin import Positional, hookimpl
from headtohead_plugins.positional.sinusoidal import Sinusoidal, SinusoidalOptions


class SinusoidalByRowOptions(SinusoidalOptions):
    """Precision and size of the table."""

    max_len: int = Field(
        128, ge=1, le=10**6, description="rows of the table: the largest batch in sentences"
    )


class SinusoidalByRow(Sinusoidal):
    """Fixed sinusoids of the row of the batch, equal for all tokens of a sentence."""

    phrase = "sinusoidal by row[ in {arithmetic} arithmetic]"
    Options = SinusoidalByRowOptions
    by_row = True

    @classmethod
    def limit(cls, options) -> int:  # type: ignore[no-untyped-def]
        """Return the rows of the table."""
        return int(options.max_len)

    def formula(self) -> str:
        return super().formula() + ", p: row of the batch"


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"sinusoidal-by-row": SinusoidalByRow}
