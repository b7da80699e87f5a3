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

    Options = KerpleOptions
    properties = frozenset({"relative", "mirror-invariant", "falls-with-distance"})

    def build(self) -> None:
        """Initialise r1 and r2, stored as the inverse of softplus."""
        self.r1, self.r2 = self._positive(2.0), self._positive(1.0)

    def _positive(self, most: float) -> nn.Parameter:
        """Sample ``[member, layer or 1, head, 1]`` uniformly from (0, most)."""

        def init(out: Tensor, generator: torch.Generator) -> Tensor:
            share: Tensor = torch.special.ndtr(out.normal_(generator=generator))
            return (most * share).clamp(min=0.01).expm1().log()

        return self.parameter(
            _sets(self.options, self.context), self.context.geometry.heads, 1, init=init
        )

    def formula(self) -> str:
        return "B[i, j] = −r_1 · log(1 + r_2 · |i − j|), r_1, r_2 > 0: trained, per head"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the penalties, ``[member, batch or 1, head, query, key]``."""
        distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
        own = layer if self.r1.shape[1] > 1 else 0
        r1, r2 = (softplus(r[:, own])[:, None, :, :, None] for r in (self.r1, self.r2))
        return -r1 * torch.log1p(r2 * distance[:, None])


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"kerple-log": KerpleLog}


def _sets(options, context) -> int:  # type: ignore[no-untyped-def]
    return int(context.layers) if options.layers == "own" else 1
