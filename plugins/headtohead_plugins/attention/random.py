"""A matrix of scores for each head, drawn once, by place alone: content has no say.

Paper: Y. Tay et al. "Synthesizer: Rethinking Self-Attention for Transformer Models". ICML 2021,
arXiv:2005.00743, section 3.2: softmax(R) V with R random, trained or left as it is.
A negative control. There are no queries and no keys; places beyond R are an error.
Departs from the paper: used in the decoder and in cross-attention too, where the mask cuts R.
"""

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from headtohead import Attention, Cost, Geometry, ModelConfig, hookimpl
from headtohead import Options as BaseOptions


class RandomOptions(BaseOptions):
    """Size and start of the matrix, and whether it learns."""

    max_length: int = Field(64, ge=1, description="places in R, boundary tokens counted")
    trained: bool = Field(True, description="whether R learns, or stays as it was drawn")
    std: float = Field(1.0, gt=0, description="standard deviation of the drawn R")


class Random(Attention):
    """Heads of width d_model / heads whose scores are R[query place, key place]."""

    Options = RandomOptions
    options: RandomOptions
    cost = Cost(parameters="h*max_length**2 + 2*d**2", biases="2*d", flops="2*n**2*d + 4*n*d**2")
    position_dependent = True

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        """Return heads without keys."""
        return replace(super().geometry(options, model), key_width=0, scale=1.0)

    def build(self) -> None:
        """Draw R."""
        length = self.options.max_length
        drawn = self.parameter(self.context.geometry.heads, length, length, std=self.options.std)
        if self.options.trained:
            self.table = drawn
        else:
            self.register_buffer("table", drawn.detach())

    @classmethod
    def parameter_count(cls, options, context) -> int:  # type: ignore[no-untyped-def]
        """Return heads · max_length², or none where R does not learn."""
        return int(context.geometry.heads * options.max_length**2) if options.trained else 0

    def formula(self) -> str:
        """Return where scores come from."""
        return "S = R_h[i, j], i and j: places of query and key"

    def scores(self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Look the pairs of places up."""
        table: Tensor = self.table
        seen = table[:, :, query_positions[0]][..., key_positions[0]]
        return seen.unsqueeze(1).expand(-1, q.shape[1], -1, -1, -1)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``random``."""
    return {"random": Random}
