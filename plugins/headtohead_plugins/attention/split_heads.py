"""Heads that share the width of the model: d_k = d_v = d_model / heads.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.2.2.
"""

from headtohead import Attention, Geometry, HeadToHeadError, ModelConfig, Options, hookimpl


class SplitHeads(Attention):
    """Standard multi-head attention; the heads split d_model between them."""

    @classmethod
    def geometry(cls, options: Options, model: ModelConfig) -> Geometry:
        """Return heads of width d_model / heads."""
        if model.d_model % model.heads:
            raise HeadToHeadError(
                "split-heads needs d_model to be a multiple of heads, "
                f"got {model.d_model} and {model.heads}"
            )
        width = model.d_model // model.heads
        return Geometry(model.heads, model.heads, width, width, width**-0.5)


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``split-heads``."""
    return {"split-heads": SplitHeads}
