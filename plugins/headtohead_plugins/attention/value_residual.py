"""Values of every layer are mixed with those of the first layer.

Paper: Z. Zhou et al. "Value Residual Learning". ACL 2025, arXiv:2410.17897, section 3 (ResFormer):
V'_n = λ_1 V_1 + λ_2 V_n in layer n, before attention, with both λ = 1/2, or trained from there.
Departs from the paper: the first layer has both λ, too, so that V'_1 = (λ_1 + λ_2) V_1, which is V_1 at
initialisation.
"""

from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, HeadOptions, hookimpl


class ValueResidualOptions(HeadOptions):
    """Whether the shares of both values are trained, and key/value heads."""

    trained: bool = Field(True, description="whether λ_1 and λ_2 are trained or stay at 1/2")


class ValueResidual(Attention):
    """Split heads that add the values of the first layer to those of their layer."""

    phrase = "with value residual[ with {trained:trained|fixed} weights]"
    Options = ValueResidualOptions
    options: ValueResidualOptions

    def build(self) -> None:
        create = self.parameter if self.options.trained else self.buffer
        self.shares = create(2, std=0.0, mean=0.5)

    def formula(self) -> str:
        return "V' = λ_1 V_1 + λ_2 V, V_1: values of the first layer"

    def mix_values(self, values: Tensor, first: Tensor) -> Tensor:
        """Return the weighted sum of both values."""
        shares = self.shares[:, :, None, None, None, None]
        lambda_1, lambda_2 = shares.unbind(1)
        return lambda_1 * first + lambda_2 * values


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"value-residual": ValueResidual}
