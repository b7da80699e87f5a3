"""Query heads that all share one key head and one value head.

Paper: N. Shazeer. "Fast Transformer Decoding: One Write-Head is All You Need", 2019,
arXiv:1911.02150, section 3: Z_h = softmax(Q_h Kᵀ) V, with one K and one V for all heads h.
Departs from the paper: scores are scaled by d_k^(-1/2), which its code leaves out.
"""

from dataclasses import replace

from headtohead import Attention, Geometry, ModelConfig, Options, hookimpl


class MultiQuery(Attention):
    """Split heads over a single key/value head: what a decoder caches is ``heads`` times less."""

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads over one key/value head."""
        return replace(super().geometry(options, model), kv_heads=1)

    def formula(self) -> str:
        """Return the score of one head."""
        return "S_h = Q_h K^T / √d_k, one K and one V for all heads h"


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``multi-query``."""
    return {"multi-query": MultiQuery}
