"""Groups of query heads that share a key head and a value head.

Paper: J. Ainslie et al. "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
Checkpoints". EMNLP 2023, arXiv:2305.13245, section 2.2. ``kv_heads: 1`` is the multi-query
attention of N. Shazeer, "Fast Transformer Decoding", 2019, arXiv:1911.02150.
"""

from pydantic import Field

from headtohead.plugin import Attention, HeadOptions, hookimpl


class GroupedQueryOptions(HeadOptions):
    """Number of groups."""

    kv_heads: int | None = Field(
        2, ge=1, le=1024, description="key/value heads; must divide model.heads"
    )


class GroupedQuery(Attention):
    """Split heads with keys and values shared within groups."""

    phrase = "grouped-query attention[ with {kv_heads} key-value heads]"
    Options = GroupedQueryOptions


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"grouped-query": GroupedQuery}
