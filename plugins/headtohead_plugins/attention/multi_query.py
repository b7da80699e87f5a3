"""Query heads that share a single key head and a single value head.

Paper: N. Shazeer. "Fast Transformer Decoding: One Write-Head is All You Need", 2019,
arXiv:1911.02150, section 3: Z_h = softmax(Q_h Kᵀ) V, with the same K and V for all heads h.
Departs from the paper: scores are scaled by d_k^(-1/2), which its code omits.
"""

from dataclasses import replace

from headtohead.plugin import Attention, Geometry, ModelConfig, Options, hookimpl


class MultiQuery(Attention):
    """Split heads with a single key/value head: the cache of a decoder is ``heads`` times smaller."""

    phrase = "multi-query attention"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads with a single key/value head."""
        return replace(super().geometry(options, model), kv_heads=1)

    def formula(self) -> str:
        return "S_h = Q_h K^T / √d_k, the same K and V for all heads h"


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"multi-query": MultiQuery}
