"""The formula of each step and its meaning in words."""

from __future__ import annotations

import math

from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead_notebooks.trace.examples import number

Description = tuple[str, str]
"""A formula and its meaning; either may be empty."""

EMBEDDING: dict[str, Description] = {
    "ids": ("", "the number of each token in the vocabulary"),
    "embeddings": ("E[id]", "each token's row of the embedding table"),
    "scaled": ("E · √d_{model}", "embeddings scaled up relative to the position vectors"),
    "mixed": ("", "each embedding mixed with those of earlier tokens"),
    "positions": ("", "the vector of each position"),
    "sum": ("X = E + P", "the sum of token and position vectors, the input of the first layer"),
}

FEED_FORWARD: dict[str, Description] = {
    "inner": ("H = X W_1", "before the activation: each token projected to the inner width"),
    "activated": ("", "after the activation"),
    "gate": ("G = X W_3", "each token projected to the inner width a second time"),
    "gated": ("f(H) ∘ G", "the activation times the second projection, element by element"),
    "output": ("F = f(H) W_2", "projected back to the model width"),
    "residual": ("X + F", "the input plus the output of the block"),
    "norm": ("", "each token normalised"),
    "post_norm": ("", "the output of the block, each token normalised"),
}

FINAL_NORM = "the last norm, after all layers of this side"

OUTPUT: dict[str, Description] = {
    "logits": ("X W", "a score for every word of the target vocabulary"),
    "probabilities": ("softmax(logits)", "probabilities that sum to 1 in each row"),
    "chosen": ("argmax(logits)", "the most likely word at each position"),
}


def with_bias(formula: str, bias: str, has_bias: bool) -> str:
    """Return the formula of a linear map, with its bias if the model has biases."""
    return f"{formula} + {bias}" if has_bias else formula


def block_input(pre_norm: bool) -> str:
    """Return the input of a residual block: N(X) with pre-norm, else X."""
    return "N(X)" if pre_norm else "X"


def attention_formulas(
    part: MultiHeadAttention, masking: str | None, mask_value: str, pre_norm: bool, bias: bool
) -> dict[str, Description]:
    """Return formula and meaning of each step of an attention with its style and its encoding.

    Args:
        part: The attention.
        masking: Name of its masking scheme; None if nothing is masked.
        mask_value: How masked scores are computed.
        pre_norm: Whether the input is normalised first.
        bias: Whether the projections have biases.
    """
    style, positional, geometry = part.style, part.positional, part.context.geometry
    own, encoding = style.formula(), positional.formula()
    x = block_input(pre_norm)
    read, memory = (x, "") if part.self_attention else ("Y", "; Y is the output of the encoder")

    def is_own(*hooks: str) -> bool:
        return any(overrides(style, Attention, hook) for hook in hooks)

    def encodes(*hooks: str) -> bool:
        return any(overrides(positional, Positional, hook) for hook in hooks)

    def projected(letter: str, of: str) -> str:
        return with_bias(f"{letter} = {of} W_{letter}", f"b_{letter}", bias)

    transformed = "; ".join(filter(None, (own * is_own("transform"), encoding * encodes("rotate"))))
    root = math.sqrt(geometry.key_width)
    scale = f" · {number(geometry.scale)}"
    if math.isclose(geometry.scale * root, 1.0):
        scale = f" / √d_k, √d_k = √{geometry.key_width} = {number(root)}"
    products = f"Q K^T{scale}"
    if is_own("scores") or not geometry.key_width:
        products = own or "S: defined by the style"
    scores = products if "=" in products.split("√")[0] else f"S = {products}"
    if encodes("bias", "score"):
        scores = "S = products + B"
    masked = {"-inf": "−∞", "-1e9": "−10^9", "additive": "S − 10^9"}[mask_value]
    filled, projection = (
        f"S' = S where M = 1, {masked} where M = 0",
        with_bias("O = Z W_O", "b_O", bias),
    )
    shares, outputs = "softmax(S)" if masking is None else "softmax(S')", "Z = A V"
    if not style.projects:
        filled, shares, projection = own, "softmax(filled)", "O = Z"
    if encodes("values"):
        outputs += f" + {encoding or 'the values added by the encoding'}"
    return {
        "plain-queries": (projected("Q", x), "the query of each token, before transformation"),
        "plain-keys": (
            projected("K", read),
            f"the key of each token, before transformation{memory}",
        ),
        "queries": (transformed or projected("Q", x), "the query of each token"),
        "keys": (transformed or projected("K", read), f"the key of each token{memory}"),
        "values": (
            projected("V", read) if style.projects else own,
            f"the value of each token{memory}",
        ),
        "products": (products, "scaled dot product of each query and each key"),
        "bias": (encoding, "the values added by the positional encoding"),
        "unmixed": (scores, "the scores before heads are mixed"),
        "scores": (
            own or "S: defined by the style" if is_own("mix_scores") else scores,
            "score of each query (row) and each key (column)",
        ),
        "mask": (
            f"M: masking '{masking}'",
            "1 where a key may be attended to, 0 where it is masked",
        ),
        "filled": (filled, "scores with masked keys replaced by the mask value"),
        "unmixed-weights": (shares, "the weights of each map, before maps are mixed"),
        "weights": (
            f"A: {own or 'defined by the style'}"
            if is_own("normalise", "mix")
            else f"A = {shares}",
            "how much each token (row) attends to each other (column)",
        ),
        "output": (outputs, "the values, averaged with the weights"),
        "finished": (own, "the output of the head, transformed by the style"),
        "concatenation": ("Z = [Z_0, Z_1, …]", "the outputs of all heads side by side"),
        "projection": (
            projection,
            "the outputs of the heads projected to the model width"
            if style.projects
            else "no projections",
        ),
        "residual": ("X + O", "the input plus the output of the block"),
        "norm": FEED_FORWARD["norm"],
        "post_norm": FEED_FORWARD["post_norm"],
    }
