"""A penalty that grows with the logarithm of distance, with trained parameters per head.

Paper: T.-C. Chi, T.-H. Fan, P. J. Ramadge, A. I. Rudnicky. "KERPLE: Kernelized Relative Positional
Embedding for Length Extrapolation". NeurIPS 2022, arXiv:2205.09921, section 4, "practical choice",
logarithmic: -r1 · log(1 + r2 · |i - j|) with r1, r2 > 0. As in the authors' code, all layers share r1
and r2, which are initialised uniformly in (0, 2) and (0, 1).
Departs from the paper: equation 1 also divides the bias by √d_k, which r1 compensates. softplus
keeps r1 and r2 positive, where the authors' code clamps them at 0.01. The bias of an encoder depends
on distance and not on direction, as with ``alibi``.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl


class KerpleOptions(BaseOptions):
    """Sharing of parameters between layers."""

    layers: Literal["shared", "own"] = Field(
        "shared", description="shared: r1 and r2 per head; own: r1 and r2 per head and layer"
    )


class KerpleLog(Positional):
    """A logarithmic penalty on distance with two trained numbers per head, added to the scores.

    r1 is the largest slope and r2 the inverse of the distance scale.
    """

    phrase = "KERPLE[ with {layers} parameters of the layers]"
    Options = KerpleOptions
    options: KerpleOptions
    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def build(self) -> None:
        """Initialise r1 and r2, stored as the inverse of softplus."""
        self.r1 = self._positive(2.0)
        self.r2 = self._positive(1.0)

    def _positive(self, most: float) -> nn.Parameter:
        """Sample ``[member, layer or 1, head, 1]`` uniformly from (0, most)."""

        def init(out: Tensor, generator: torch.Generator) -> Tensor:
            normal = out.normal_(generator=generator)
            share: Tensor = torch.special.ndtr(normal)
            sampled = (most * share).clamp(min=0.01)
            return sampled.expm1().log()

        sets = 1
        if self.options.layers == "own":
            sets = self.context.layers
        heads = self.context.geometry.heads
        return self.parameter(sets, heads, 1, init=init)

    def formula(self) -> str:
        return "B[i, j] = −r_1 · log(1 + r_2 · |i − j|), r_1, r_2 > 0: trained, per head"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the penalties, ``[member, batch or 1, head, query, key]``."""
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        index = layer
        if self.r1.shape[1] == 1:
            index = 0
        r1 = softplus(self.r1[:, index])[:, None, :, :, None]
        r2 = softplus(self.r2[:, index])[:, None, :, :, None]
        logarithm = torch.log1p(r2 * distance[:, None])
        return -r1 * logarithm


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"kerple-log": KerpleLog}
