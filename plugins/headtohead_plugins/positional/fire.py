"""A small network's answer to the distance, as a share of how far the query has come.

Paper: S. Li et al. "Functional Interpolation for Relative Positions Improves Long Context
Transformers". ICLR 2024, arXiv:2310.04418, section 3: f(psi(i - j) / psi(max(L, i))) with
psi(x) = log(c·x + 1); f has one hidden layer of 32 with ReLU and an output per head, c and L are
trained. As in the authors' code (appendix), c starts at 0.1, L is a trained multiple of its start,
both enter by absolute value, and 1e-6 keeps the denominator off 0.
Departs from the paper: L starts at 4, not 512, so that it lies within a sentence (theirs is a
quarter of 2048 training tokens); f has no bias at its output, which a softmax does not see, and
starts normally, with the variance of the usual uniform start.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from headtohead import Cost, Positional, Setting, hookimpl, registered
from headtohead import Options as BaseOptions


class FireOptions(BaseOptions):
    """Size and start of the function."""

    hidden: int = Field(32, ge=1, description="units of the hidden layer")
    threshold: float = Field(4.0, gt=0, description="start of L, in tokens")
    layers: Literal["own", "shared"] = Field(
        "own", description="a function for each layer, or one for all (the paper's FIRE-S)"
    )


class Fire(Positional):
    """A trained function of ``psi(i - j) / psi(max(L, i))`` with a value for each head."""

    Options = FireOptions
    options: FireOptions
    cost = Cost(parameters="L*h*hidden + 2*L*hidden + 2*L", flops="2*n**2*h*hidden")

    def build(self) -> None:
        """Draw the network; c and the multiple of L start at 0.1 and 1."""
        sets, hidden = _sets(self.options, self.context), self.options.hidden
        heads = self.context.geometry.heads
        self.inner = self.parameter(sets, 2, hidden, std=3**-0.5)
        self.outer = self.parameter(sets, hidden, heads, std=(3 * hidden) ** -0.5)
        self.c = self.parameter(sets, std=0.0, mean=0.1)
        self.multiple = self.parameter(sets, std=0.0, mean=1.0)

    @classmethod
    def parameter_count(cls, options, context) -> int:  # type: ignore[no-untyped-def]
        """Return layers or 1 · (2 · hidden + hidden · heads + 2)."""
        heads, hidden = context.geometry.heads, options.hidden
        return _sets(options, context) * int(2 * hidden + hidden * heads + 2)

    @classmethod
    def incompatible_with(cls, options: BaseOptions, setting: Setting) -> str | None:
        """Refuse attention that is not causal: the share of the way is taken by what is behind."""
        if setting.role != "decoder":
            return (
                "fire divides a distance by the query's own place, which means something only "
                f"where keys are behind the query; for the {setting.role} use another encoding"
            )
        masking = setting.config.masking.decoder
        entry = registered("masking", masking.name)
        if entry(entry.Options.model_validate(masking.options)).hides_later("decoder"):
            return None
        return f"fire needs a causal decoder, and masking {masking.name} shows it later tokens"

    def formula(self) -> str:
        """Return the share that the function is asked for."""
        return "B[i, j] = f(ψ(i − j) / ψ(max(L, i))), ψ(x) = log(c · x + 1), f: a trained network"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the function's values, ``[member, batch or 1, head, query, key]``."""
        own = layer if self.c.shape[1] > 1 else 0
        c, threshold = self.c[:, own].abs(), self.multiple[:, own].abs() * self.options.threshold
        # Later keys are masked; they count as distance 0, since log has no value for them.
        behind = (query_positions[:, :, None] - key_positions[:, None, :]).clamp(min=0)
        place = torch.maximum(query_positions[None], threshold[:, None, None])
        far = torch.log1p(c[:, None, None] * place).unsqueeze(-1) + 1e-6
        share = torch.log1p(c[:, None, None, None] * behind) / far
        weight, offset = self.inner[:, own, :, None, None, None].unbind(1)
        hidden = (share.unsqueeze(-1) * weight + offset).relu()
        return torch.einsum("mbqku,muh->mbhqk", hidden, self.outer[:, own])


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``fire``."""
    return {"fire": Fire}


def _sets(options, context) -> int:  # type: ignore[no-untyped-def]
    return int(context.layers) if options.layers == "own" else 1
