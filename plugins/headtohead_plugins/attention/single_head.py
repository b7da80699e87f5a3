"""One head as wide as the model.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, table 3 row A.
"""

from headtohead import Attention, Geometry, ModelConfig, Options, hookimpl


class SingleHead(Attention):
    """One head with d_k = d_v = d_model, whatever ``model.heads`` says."""

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return a single full-width head."""
        return Geometry(1, 1, model.d_model, model.d_model, model.d_model**-0.5)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``single-head``."""
    return {"single-head": SingleHead}
