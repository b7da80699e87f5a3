"""A learned function of the distance relative to the query's position, added to the scores.

Paper: S. Li et al. "Functional Interpolation for Relative Positions Improves Long Context
Transformers". ICLR 2024, arXiv:2310.04418, section 3: f(psi(i - j) / psi(max(L, i))) with
psi(x) = log(c·x + 1). f is a network with a hidden layer of 32 ReLU units and an output per head; c
and L are trained. As in the authors' code (appendix), c starts at 0.1, L is a trained multiple of
its initial value, absolute values of both are used, and 1e-6 is added to the denominator.
Departs from the paper: L starts at 4 instead of 512, so that it is shorter than a sentence (512 is
a quarter of the authors' 2048 training tokens). f has no output bias, to which a softmax is
invariant. Its weights are initialised normally, with the variance of the usual uniform
initialisation.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import registered
from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, Setting, hookimpl


class FireOptions(BaseOptions):
    """Size and initialisation of the function."""

    hidden: int = Field(32, ge=1, le=65_536, description="units of the hidden layer")
    threshold: float = Field(4.0, gt=0, le=10**6, description="initial value of L, in tokens")
    layers: Literal["own", "shared"] = Field(
        "own",
        description="own: a function per layer; shared: the same for all layers (the paper's FIRE-S)",
    )


class Fire(Positional):
    """A trained function of the distance relative to the position, added to the scores.

    Its input is ``psi(i - j) / psi(max(L, i))``, its output a number per head.
    """

    phrase = "FIRE[ with {layers} parameters of the layers][ with hidden width {hidden}]"
    Options = FireOptions
    options: FireOptions

    def build(self) -> None:
        """Initialise the network, c = 0.1 and the multiple of L = 1."""
        sets = 1
        if self.options.layers == "own":
            sets = self.context.layers
        hidden = self.options.hidden
        heads = self.context.geometry.heads
        self.inner = self.parameter(sets, 2, 1, hidden, std=3**-0.5)
        self.outer = self.parameter(sets, hidden, heads, std=(3 * hidden) ** -0.5)
        self.c = self.parameter(sets, std=0.0, mean=0.1)
        self.multiple = self.parameter(sets, std=0.0, mean=1.0)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Exclude attention to later keys, for which the ratio is not defined."""
        if setting.role != "decoder":
            return (
                "fire divides the distance by the query's position, which is defined only where keys "
                f"precede the query; use another encoding for the {setting.role}"
            )
        for masking in setting.config.masking.decoder.pattern:
            scheme = registered("masking", masking.name)(masking.options)
            if not scheme.hides_later("decoder"):
                return (
                    f"fire requires a causal decoder, but masking {masking.name} shows later tokens; "
                    "use a causal masking"
                )
        return None

    def formula(self) -> str:
        return "B[i, j] = f(ψ(i − j) / ψ(max(L, i))), ψ(x) = log(c · x + 1), f: a trained network"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return f of every pair, ``[member, batch or 1, head, query, key]``."""
        index = layer
        if self.c.shape[1] == 1:
            index = 0
        c = self.c[:, index].abs()
        threshold = self.multiple[:, index].abs() * self.options.threshold
        difference = query_positions[:, :, None] - key_positions[:, None, :]
        # Later keys are masked. They get distance 0, as log is not defined for negative numbers.
        distance = difference.clamp(min=0)
        position = torch.maximum(query_positions[None], threshold[:, None, None])
        psi_position = torch.log1p(c[:, None, None] * position).unsqueeze(-1)
        denominator = psi_position + 1e-6
        psi_distance = torch.log1p(c[:, None, None, None] * distance)
        ratio = psi_distance / denominator
        weight, offset = self.inner[:, index, :, None, None].unbind(1)
        hidden = (ratio.unsqueeze(-1) * weight + offset).relu()
        return torch.einsum("mbqku,muh->mbhqk", hidden, self.outer[:, index])


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"fire": Fire}
