"""No positional encoding: only a causal mask makes the model depend on word order.

Paper: A. Haviv, O. Ram, O. Press, P. Izsak, O. Levy. "Transformer Language Models without
Positional Encodings Still Learn Positional Information". Findings of EMNLP 2022, arXiv:2203.16634.
The paper does not treat encoders: an encoder without positions is exactly a bag of words.
"""

from headtohead.plugin import Positional, hookimpl


class NoPositional(Positional):
    """No positional encoding (NoPE)."""

    phrase = "without positions"
    properties = frozenset({"order-invariant", "relative"})


@hookimpl
def register_positionals() -> dict[str, type[Positional]]:
    return {"none": NoPositional}
