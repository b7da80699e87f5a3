"""Heads that share the width of the model: d_k = d_v = d_model / heads.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.2.2.
"""

from headtohead import Attention, hookimpl


class SplitHeads(Attention):
    """Standard multi-head attention; the heads split d_model between them."""


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    """Register ``split-heads``."""
    return {"split-heads": SplitHeads}
