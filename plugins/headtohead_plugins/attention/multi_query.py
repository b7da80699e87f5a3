"""Query heads that all share one key head and one value head.

Paper: N. Shazeer. "Fast Transformer Decoding: One Write-Head is All You Need", 2019,
arXiv:1911.02150, section 3: Z_h = softmax(Q_h Kᵀ) V, with one K and one V for all heads h.
Departs from the paper: scores are scaled by d_k^(-1/2), which its code leaves out.
"""

from dataclasses import replace

from headtohead import Attention, Cost, Geometry, ModelConfig, Options, hookimpl


class MultiQuery(Attention):
    """Split heads over a single key/value head: what a decoder caches is ``heads`` times less."""

    cost = Cost(parameters="2*d**2 + 2*d**2/h", biases="2*d + 2*d/h", flops="4*n**2*d + 4*n*d**2 + 4*n*d**2/h")

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
