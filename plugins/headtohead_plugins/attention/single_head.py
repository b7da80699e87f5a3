"""A single head of the width of the model.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, table 3 row A.
"""

from headtohead.plugin import Attention, Geometry, ModelConfig, Options, hookimpl


class SingleHead(Attention):
    """A single head with d_k = d_v = d_model; ``model.heads`` is ignored."""

    phrase = "a single head"

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        return Geometry(1, 1, model.d_model, model.d_model, model.d_model**-0.5)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"single-head": SingleHead}
