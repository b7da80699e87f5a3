"""Heads with short windows: head n attends to the n nearest keys, and the other heads have no positions.

Paper: S. Jelassi, D. Brandfonbrener, S. M. Kakade, E. Malach. "Repeat After Me: Transformers are Better than State
Space Models at Copying". ICML 2024, arXiv:2402.01032, Hard-ALiBi; the authors' code: head n of the first m heads
attends to keys at distances below n.
Departs from the paper: the score of a key outside of the window is lowered by 10^6 instead of 3.4 · 10^38.
An encoder, which the paper does not treat, attends to both directions.
"""

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, Setting, find_geometry, hookimpl

OUTSIDE = -1e6


class HardAlibiOptions(BaseOptions):
    """How many heads have a window."""

    windows: int = Field(
        2, ge=1, le=1024, description="m: number of heads with a window; head n of them has n keys"
    )


def biases(query_positions: Tensor, key_positions: Tensor, heads: int, windows: int) -> Tensor:
    """Return 0 inside and -10^6 outside of the windows, ``[1, batch or 1, head, query, key]``, in float64."""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
    head = torch.arange(1, heads + 1, device=distance.device)[:, None, None]
    outside = (distance[:, None] >= head) & (head <= windows)
    return outside.double().mul(OUTSIDE).unsqueeze(0)


class HardAlibi(Positional):
    """Windows of 1, 2, ... keys in the first heads, and no positions in the others."""

    phrase = "hard ALiBi[ with {windows} windows]"
    Options = HardAlibiOptions
    options: HardAlibiOptions
    properties = frozenset({"relative", "mirror-invariant"})

    @classmethod
    def incompatible_with(cls, options: HardAlibiOptions, setting: Setting) -> str | None:  # type: ignore[override]
        """Require as many heads as windows."""
        heads = find_geometry(setting.config, setting.role).heads
        if heads < options.windows:
            return f"hard-alibi has {options.windows} windows for {heads} heads; lower positional.windows"
        return None

    @classmethod
    def violations_by_option(cls, options) -> dict[str, str]:  # type: ignore[no-untyped-def]
        """Return ``gradients``: head 1 attends to its own position alone, whatever its query and key are."""
        return {"gradients": "windows"}

    def formula(self) -> str:
        return f"B[i, j] = −10^6 for |i − j| ≥ n in head n ≤ {self.options.windows}, else 0"

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor:
        """Return the biases, which are equal for all members and layers."""
        heads = self.context.geometry.heads
        windows = self.options.windows
        return self.cached(biases, query_positions, key_positions, heads, windows)


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"hard-alibi": HardAlibi}
