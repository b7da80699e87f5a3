"""Sinusoids whose start is drawn anew for each training sentence, so that only differences help.

Paper: S. Kiyono, S. Kobayashi, J. Suzuki, K. Inui. "SHAPE: Shifted Absolute Position Embedding for
Transformers". EMNLP 2021, arXiv:2109.05644, section 2.3: row p + k of the sinusoidal table, with k
drawn uniformly from 0..K for each sentence and step, apart for source and target; K = 500.
Evaluation takes k = 0, as the paper says; the authors' code trains on 0..K - 1 and evaluates at K.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead import Options as BaseOptions
from headtohead import PerMemberRNG, Positional, hookimpl, registered


class ShapeOptions(BaseOptions):
    """Reach of the offset."""

    max_shift: int = Field(500, ge=0, description="largest offset that training draws, in tokens")


class Shape(Positional):
    """Shifted sinusoids, added to the embeddings."""

    Options = ShapeOptions
    options: ShapeOptions

    def build(self) -> None:
        """Make the sinusoids and each member's stream of offsets."""
        entry = registered("positional", "sinusoidal")
        self.sinusoidal = entry(entry.Options(), self.context)
        self.draws = PerMemberRNG(self.context)

    @classmethod
    def depends_on(cls, options: BaseOptions) -> tuple[str, ...]:
        """Return the sinusoid."""
        return ("sinusoidal",)

    def formula(self) -> str:
        """Return the sinusoids, and what p counts."""
        drawn = f"plus, while training, an offset drawn from 0..{self.options.max_shift}"
        return f"{self.sinusoidal.formula()} {drawn}"

    def draw(self, batch: int, time: int) -> Tensor:
        """Return places plus one offset per sentence, ``[member, batch, time]``."""
        most = self.options.max_shift
        shifts: Tensor = self.draws(lambda own: torch.randint(most + 1, (batch, 1), generator=own))
        return shifts + torch.arange(time, device=shifts.device)

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return the sinusoids of the positions."""
        return self.sinusoidal.embed(positions, role)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``shape``."""
    return {"shape": Shape}
