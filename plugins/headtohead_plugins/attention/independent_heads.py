"""Heads that each see the full width of the model: d_k = d_v = d_model.

Source: notebook 1 ("independent heads"); the same as Keras' ``key_dim=embed_dim``. Head widths
beyond d_model / heads are studied in S. Bhojanapalli et al. "Low-Rank Bottleneck in Multi-head
Attention Models", ICML 2020, arXiv:2002.07028. It has ``heads`` times the projections of
split heads: compare with ``match: parameters`` beside it.
"""

from headtohead import Attention, Cost, Geometry, ModelConfig, Options, hookimpl


class IndependentHeads(Attention):
    """Full-width projections per head, concatenated (heads · d_model) and projected back."""

    cost = Cost(parameters="4*d**2*h", biases="3*d*h + d", flops="4*n**2*d*h + 8*n*d**2*h")

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model, scores scaled by d_model ** -0.5."""
        width = model.d_model
        return Geometry(model.heads, model.heads, width, width, width**-0.5)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``independent-heads``."""
    return {"independent-heads": IndependentHeads}
