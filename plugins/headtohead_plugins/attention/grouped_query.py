"""Groups of query heads that share a key head and a value head.

Paper: J. Ainslie et al. "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
Checkpoints". EMNLP 2023, arXiv:2305.13245, section 2.2. ``kv_heads: 1`` is the multi-query
attention of N. Shazeer, "Fast Transformer Decoding", 2019, arXiv:1911.02150.
"""

from pydantic import Field

from headtohead.plugin import Attention, Geometry, HeadToHeadError, ModelConfig, hookimpl
from headtohead.plugin import Options as BaseOptions


class GroupedQueryOptions(BaseOptions):
    """Number of groups."""

    kv_heads: int = Field(2, ge=1, le=1024, description="key/value heads; must divide model.heads")


class GroupedQuery(Attention):
    """Split heads with keys and values shared within groups."""

    Options = GroupedQueryOptions

    @classmethod
    def geometry(cls, options: BaseOptions, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads with fewer key/value heads."""
        assert isinstance(options, GroupedQueryOptions)
        if model.d_model % model.heads or model.heads % options.kv_heads:
            raise HeadToHeadError(
                "grouped-query needs kv_heads to divide heads and heads to divide d_model, "
                f"got {options.kv_heads}, {model.heads} and {model.d_model}"
            )
        width = model.d_model // model.heads
        return Geometry(model.heads, options.kv_heads, width, width, width**-0.5)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"grouped-query": GroupedQuery}
