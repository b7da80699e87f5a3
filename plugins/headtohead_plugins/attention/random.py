"""A random matrix of scores per head: scores depend on positions and not on tokens.

Paper: Y. Tay et al. "Synthesizer: Rethinking Self-Attention for Transformer Models". ICML 2021,
arXiv:2005.00743, section 3.2: softmax(R) V with R random, trained or fixed.
A negative control without queries and keys. Positions beyond R are an error.
Departs from the paper: it is also defined in the decoder and in cross-attention, where R is masked.
"""

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, Geometry, ModelConfig, hookimpl
from headtohead.plugin import Options as BaseOptions


class RandomOptions(BaseOptions):
    """Size and initialisation of the matrix, and whether it is trained."""

    max_length: int = Field(
        64,
        ge=1,
        le=100_000,
        description="rows of R: tokens of the longest sentence, with boundary tokens",
    )
    trained: bool = Field(True, description="whether R is trained or stays at initialisation")
    std: float = Field(1.0, gt=0, le=1000, description="standard deviation of R at initialisation")


class Random(Attention):
    """Heads of width d_model / heads with scores R[query position, key position]."""

    phrase = "random attention[ with {trained:trained|fixed} scores][ for {max_length} tokens]"
    Options = RandomOptions
    options: RandomOptions
    position_dependent = True

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        geometry = super().geometry(options, model)
        return replace(geometry, key_width=0, scale=1.0)

    def build(self) -> None:
        create = self.parameter if self.options.trained else self.buffer
        heads = self.context.geometry.heads
        length = self.options.max_length
        self.table = create(heads, length, length, std=self.options.std)

    def formula(self) -> str:
        return "S = R_h[i, j], i and j: positions of query and key"

    def scores(
        self, q: Tensor, k: Tensor, query_positions: Tensor, key_positions: Tensor
    ) -> Tensor:
        rows = self.table[:, :, query_positions[0]]
        scores = rows[..., key_positions[0]]
        batch = q.shape[1]
        return scores.unsqueeze(1).expand(-1, batch, -1, -1, -1)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"random": Random}
