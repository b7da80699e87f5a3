"""A gated part of the previous token's embedding is added to each token's embedding, before the first layer.

Source: K. Jordan et al. "modded-nanogpt", github.com/KellerJordan/modded-nanogpt, record 34, and openai/parameter-golf,
pull request 1667: x'_t = x_t + λ · σ(w · x_t[:12]) · x_{t-1}, where x are the embeddings, once, before the first layer.
λ, a number, and w start at 0, so that the initial model has no smearing.
Departs from the source: they normalise the result by its root mean square and train w with a hundredth of the learning
rate. An earlier gate in parameter-golf has weights per channel that do not depend on the token.
In a pattern of styles over the layers, smear has an effect only as the first one.
"""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from headtohead.plugin import Attention, HeadOptions, hookimpl


class SmearOptions(HeadOptions):
    """Width of the gate's input, and key/value heads."""

    gate_width: int = Field(
        12, ge=1, le=65_536, description="coordinates of the embedding that the gate depends on"
    )


class Smear(Attention):
    """Split heads; each token's embedding receives a gated part of the previous token's embedding."""

    phrase = "with smearing"
    Options = SmearOptions
    options: SmearOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    def build(self) -> None:
        if self.context.layer == 0:
            width = min(self.options.gate_width, self.context.d_model)
            self.gate = self.parameter(width, 1, std=0.0)
            self.share = self.parameter(1, std=0.0)

    def formula(self) -> str:
        return f"x'_t = x_t + λ σ(w · x_t[:{self.options.gate_width}]) x_{{t−1}}, x: embeddings"

    def mix_embeddings(self, x: Tensor) -> Tensor:
        """Add the gated embedding of the previous token."""
        width = self.gate.shape[1]
        inputs = x[..., :width].flatten(1, 2)
        scores = inputs @ self.gate
        lambda_ = self.share[:, :, None, None]
        gates = lambda_ * scores.sigmoid().view(*x.shape[:3], 1)
        previous = pad(x, (0, 0, 1, -1))
        return x + gates * previous


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"smear": Smear}
