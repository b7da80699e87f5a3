"""An embedding of each token for each layer, mixed into the values of the first and last layers.

Source: K. Jordan et al. "modded-nanogpt", github.com/KellerJordan/modded-nanogpt, value embeddings:
V'_t = λ_1 V_t + λ_2 E[id_t] in the first and in the last three layers, where E is a table of the vocabulary with the
width of all values. Both λ, numbers per layer, start at 1/2, and E normally with standard deviation 1.
Departs from the source: every layer has its own table; there, the first and the last three layers share three tables.
The other layers keep their values; there, λ_1 multiplies them.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from headtohead.plugin import Attention, HeadOptions, hookimpl


class ValueEmbeddingOptions(HeadOptions):
    """Number of layers with value embeddings, and key/value heads."""

    ends: int = Field(
        3, ge=1, le=1024, description="layers from the first, and from the last, that have a table"
    )


class ValueEmbedding(Attention):
    """Split heads that add an embedding of each token to its value."""

    phrase = "with value embeddings[ in {ends} layers at each end]"
    Options = ValueEmbeddingOptions
    options: ValueEmbeddingOptions
    role_defaults: ClassVar[Mapping[str, str]] = {"cross": "split-heads"}

    def build(self) -> None:
        layer = self.context.layer or 0
        ends = self.options.ends
        is_first = layer < ends
        is_last = layer >= self.context.layers - ends
        self.embeds = is_first or is_last
        if self.embeds:
            geometry = self.context.geometry
            width = geometry.value_heads * geometry.value_width
            self.table = self.parameter(self.context.words, width)
            self.shares = self.parameter(2, std=0.0, mean=0.5)

    def formula(self) -> str:
        return "V'_t = λ_1 V_t + λ_2 E[id_t]"

    def embed_values(self, values: Tensor, ids: Tensor) -> Tensor:
        """Return the weighted sum of values and embeddings."""
        if not self.embeds:
            return values
        # The tables of all members are one, in which each member's rows follow the previous member's.
        members = torch.arange(len(ids), device=ids.device)
        words = self.table.shape[1]
        first_rows = members[:, None, None] * words
        table = self.table.flatten(0, 1)
        rows: Tensor = torch.embedding(table, ids + first_rows)
        heads = values.shape[2]
        embedded: Tensor = rows.unflatten(-1, (heads, -1)).transpose(2, 3)
        shares = self.shares[:, :, None, None, None, None]
        return shares[:, 0] * values + shares[:, 1] * embedded


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"value-embedding": ValueEmbedding}
