"""Trained vectors per clipped relative position, added to keys and values.

Paper: P. Shaw, J. Uszkoreit, A. Vaswani. "Self-Attention with Relative Position Representations".
NAACL 2018, arXiv:1803.02155, sections 3.1 to 3.3: with c = clip(j - i, -k, k), scores are
q_i · (k_j + a^K_c) / sqrt(d_k) and outputs are sum_j w_ij (v_j + a^V_c). The heads of a layer share
the vectors (section 3.3). The base model of section 4.1 has vectors per head and k = 16.
Departs from the paper: it is also defined in cross-attention, where the paper has no positions.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import Parameter

from headtohead.plugin import Options as BaseOptions
from headtohead.plugin import Positional, hookimpl


class ShawOptions(BaseOptions):
    """Range and use of the vectors."""

    clip: int = Field(
        16, ge=1, le=100_000, description="k: larger distances, in tokens, are clipped to k"
    )
    on: Literal["both", "keys", "values"] = Field(
        "both", description="what the vectors are added to"
    )
    heads: Literal["shared", "own"] = Field(
        "shared", description="shared: vectors per layer; own: vectors per layer and head"
    )


def relative_index(query_positions: Tensor, key_positions: Tensor, clip: int) -> Tensor:
    """Return ``clip(j - i, -k, k) + k``, ``[1, batch or 1, 1, query, key]``."""
    difference = key_positions[:, None, :] - query_positions[:, :, None]
    row = difference.clamp(-clip, clip) + clip
    return row[None, :, None]


class ShawRelative(Positional):
    """Trained vectors per distance, added to keys and values; distances over k share a vector.

    The tables are ``[layer, head or 1, 2k + 1, width]``.
    """

    phrase = "Shaw's relative positions[ clipped at {clip}][ on {on}][ with {heads} vectors]"
    Options = ShawOptions
    options: ShawOptions
    properties = frozenset({"relative"})

    def build(self) -> None:
        """Initialise the tables, normally with variance 1 / width."""
        geometry = self.context.geometry
        self.on_keys = None
        self.on_values = None
        if self.options.on != "values":
            self.on_keys = self._table(geometry.heads, geometry.key_width)
        if self.options.on != "keys":
            self.on_values = self._table(geometry.output_heads, geometry.value_width)

    def _table(self, heads: int, width: int) -> Parameter:
        """Return a new table of vectors of this width."""
        if self.options.heads != "own":
            heads = 1
        rows = 2 * self.options.clip + 1
        return self.parameter(self.context.layers, heads, rows, width, std=width**-0.5)

    @classmethod
    def mechanisms_of(cls, options) -> frozenset[str]:  # type: ignore[no-untyped-def]
        """Return ``score`` for vectors on keys and ``values`` for vectors on values."""
        if options.on == "keys":
            return frozenset({"score"})
        if options.on == "values":
            return frozenset({"values"})
        return frozenset({"score", "values"})

    def formula(self) -> str:
        keys = "S[i, j] = scale · q_i · (k_j + a^K_c)"
        values = "out_i = Σ_j w_{ij} · (v_j + a^V_c)"
        c = f"c = clip(j − i, ±{self.options.clip})"
        if self.options.on == "keys":
            return f"{keys}, {c}"
        if self.options.on == "values":
            return f"{values}, {c}"
        return f"{keys}, {values}, {c}"

    def score(
        self, q: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return scaled products of queries and the vectors on keys."""
        if self.on_keys is None:
            return None
        table = self.on_keys[:, None, layer]
        products = q @ table.transpose(-2, -1) * self.context.geometry.scale
        index = self.cached(relative_index, query_positions, key_positions, self.options.clip)
        expanded = index.expand(*products.shape[:3], -1, -1)
        return products.gather(-1, expanded)

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return the weighted sums of the vectors on values."""
        if self.on_values is None:
            return None
        index = self.cached(relative_index, query_positions, key_positions, self.options.clip)
        table = self.on_values[:, None, layer]
        rows = table.shape[-2]
        zeros = weights.new_zeros(*weights.shape[:-1], rows)
        expanded = index.expand_as(weights)
        weight_of_row = zeros.scatter_add(-1, expanded, weights)
        return weight_of_row @ table


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"shaw-relative": ShawRelative}
