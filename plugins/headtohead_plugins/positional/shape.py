"""Sinusoids shifted by a random offset per training sentence, which removes absolute positions.

Paper: S. Kiyono, S. Kobayashi, J. Suzuki, K. Inui. "SHAPE: Shifted Absolute Position Embedding for
Transformers". EMNLP 2021, arXiv:2109.05644, section 2.3: row p + k of the sinusoidal table, with k
sampled uniformly from 0..K for each sentence and step, separately for source and target; K = 500.
Evaluation uses k = 0, as in the paper. The authors' code trains with 0..K - 1 and evaluates with K.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead import registered
from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import PerMemberRNG, Positional, hookimpl


class ShapeOptions(BaseOptions):
    """Range of the offset."""

    max_shift: int = Field(
        500, ge=0, le=100_000, description="K: largest offset in training, in tokens"
    )


class Shape(Positional):
    """Sinusoids of positions with a random offset in training, added to the embeddings."""

    phrase = "SHAPE[ with shifts up to {max_shift}]"
    Options = ShapeOptions
    options: ShapeOptions

    def build(self) -> None:
        """Create the sinusoids and a stream of random numbers per member."""
        entry: type[Positional] = registered("positional", "sinusoidal")
        self.sinusoidal = entry(entry.Options(), self.context)
        self.rng = PerMemberRNG(self.context)

    @classmethod
    def depends_on(cls, options: BaseOptions) -> tuple[str, ...]:
        return ("sinusoidal",)

    def formula(self) -> str:
        return f"{self.sinusoidal.formula()} plus, in training, a random offset of 0..{self.options.max_shift}"

    def draw(self, batch: int, time: int) -> Tensor:
        """Return positions plus an offset per sentence, ``[member, batch, time]``."""
        most = self.options.max_shift
        shifts: Tensor = self.rng(
            lambda generator: torch.randint(most + 1, (batch, 1), generator=generator)
        )
        return shifts + torch.arange(time, device=shifts.device)

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        return self.sinusoidal.embed(positions, role)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"shape": Shape}
