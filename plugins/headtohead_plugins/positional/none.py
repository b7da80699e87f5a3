"""No positional encoding: order reaches the model only through the causal mask.

Paper: A. Haviv, O. Ram, O. Press, P. Izsak, O. Levy. "Transformer Language Models without
Positional Encodings Still Learn Positional Information". Findings of EMNLP 2022, arXiv:2203.16634.
An encoder without positions is exactly a bag of words, which that paper does not treat.
"""

from headtohead import Positional, hookimpl


class NoPositional(Positional):
    """Nothing is added anywhere (NoPE)."""

    properties = frozenset({"order-invariant", "relative"})


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    """Register ``none``."""
    return {"none": NoPositional}
