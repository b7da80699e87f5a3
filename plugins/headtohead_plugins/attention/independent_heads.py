"""Heads of the full width of the model: d_k = d_v = d_model.

Source: notebook 1 ("independent heads"), equal to ``key_dim=embed_dim`` in Keras.
S. Bhojanapalli et al. "Low-Rank Bottleneck in Multi-head Attention Models", ICML 2020,
arXiv:2002.07028, study head widths beyond d_model / heads. The projections have ``heads`` times the
parameters of split heads: compare them with ``match: parameters``.
"""

from headtohead.plugin import Attention, Geometry, ModelConfig, Options, hookimpl


class IndependentHeads(Attention):
    """Every head has the full width d_model; the output projection maps heads · d_model to d_model."""

    phrase = "independent heads"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model; scores are scaled by d_model ** -0.5."""
        width = model.d_model
        return Geometry(model.heads, model.heads, width, width, width**-0.5)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"independent-heads": IndependentHeads}
