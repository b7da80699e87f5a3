"""Heads that divide the width of the model: d_k = d_v = d_model / heads.

Paper: A. Vaswani et al. "Attention Is All You Need". NeurIPS 2017, arXiv:1706.03762, section 3.2.2.
"""

from headtohead.plugin import Attention, hookimpl


class SplitHeads(Attention):
    """Standard multi-head attention: every head has width d_model / heads."""

    phrase = "split heads"


@hookimpl
def register_attentions() -> dict[str, type[Attention]]:
    return {"split-heads": SplitHeads}
