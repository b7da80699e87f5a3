"""The formula of each step and its meaning in words."""

from __future__ import annotations

import math

from torch import nn

from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import Geometry
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

MASKED_SCORES = {"-inf": "−∞", "-1e9": "−10^9", "additive": "S − 10^9"}
"""The score of a masked key by the configuration's `mask_value`."""

UNKNOWN_SCORES = "S: defined by the style"
"""The formula of scores that a style computes without stating a formula."""


def with_bias(formula: str, bias: str, has_bias: bool) -> str:
    """Return the formula of a linear map, with its bias if the model has biases."""
    if not has_bias:
        return formula
    return f"{formula} + {bias}"


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
    style = part.style
    positional = part.positional
    style_formula = style.formula()
    encoding = positional.formula()
    queries_from = block_input(pre_norm)
    keys_from = queries_from
    memory = ""
    if not part.is_self_attention:
        keys_from = "Y"
        memory = "; Y is the output of the encoder"

    def projected(letter: str, of: str) -> str:
        return with_bias(f"{letter} = {of} W_{letter}", f"b_{letter}", bias)

    plain_queries = projected("Q", queries_from)
    plain_keys = projected("K", keys_from)
    transformed = _transformation(style, positional)
    products = _products(style, part.context.geometry)
    scores = _scores(products, positional)
    mixed_scores = scores
    if _overrides_any(style, Attention, "mix_scores"):
        mixed_scores = style_formula or UNKNOWN_SCORES

    if style.projects:
        values = projected("V", keys_from)
        filled = f"S' = S where M = 1, {MASKED_SCORES[mask_value]} where M = 0"
        shares = "softmax(S)" if masking is None else "softmax(S')"
        projection = with_bias("O = Z W_O", "b_O", bias)
        projection_meaning = "the outputs of the heads projected to the model width"
    else:
        values = style_formula
        filled = style_formula
        shares = "softmax(filled)"
        projection = "O = Z"
        projection_meaning = "no projections"

    weights = f"A = {shares}"
    if _overrides_any(style, Attention, "normalise", "mix"):
        weights = f"A: {style_formula or 'defined by the style'}"
    outputs = "Z = A V"
    if _overrides_any(positional, Positional, "values"):
        outputs = f"Z = A V + {encoding or 'the values added by the encoding'}"

    return {
        "plain-queries": (
            plain_queries,
            "the query of each token, before transformation",
        ),
        "plain-keys": (
            plain_keys,
            f"the key of each token, before transformation{memory}",
        ),
        "queries": (transformed or plain_queries, "the query of each token"),
        "keys": (transformed or plain_keys, f"the key of each token{memory}"),
        "values": (values, f"the value of each token{memory}"),
        "products": (products, "scaled dot product of each query and each key"),
        "bias": (encoding, "the values added by the positional encoding"),
        "unmixed": (scores, "the scores before heads are mixed"),
        "scores": (mixed_scores, "score of each query (row) and each key (column)"),
        "mask": (
            f"M: masking '{masking}'",
            "1 where a key may be attended to, 0 where it is masked",
        ),
        "filled": (filled, "scores with masked keys replaced by the mask value"),
        "unmixed-weights": (
            shares,
            "the weights of each map, before maps are mixed",
        ),
        "weights": (
            weights,
            "how much each token (row) attends to each other (column)",
        ),
        "output": (outputs, "the values, averaged with the weights"),
        "finished": (
            style_formula,
            "the output of the head, transformed by the style",
        ),
        "concatenation": (
            "Z = [Z_0, Z_1, …]",
            "the outputs of all heads side by side",
        ),
        "projection": (projection, projection_meaning),
        "residual": ("X + O", "the input plus the output of the block"),
        "norm": FEED_FORWARD["norm"],
        "post_norm": FEED_FORWARD["post_norm"],
    }


def _overrides_any(entry: nn.Module, base: type, *hooks: str) -> bool:
    """Return whether an entry implements at least one of the hooks itself."""
    return any(overrides(entry, base, hook) for hook in hooks)


def _transformation(style: Attention, positional: Positional) -> str:
    """Return how queries and keys are transformed by the style and the encoding; empty if they are not."""
    formulas = []
    if _overrides_any(style, Attention, "transform"):
        formulas.append(style.formula())
    if _overrides_any(positional, Positional, "rotate"):
        formulas.append(positional.formula())
    return "; ".join(formula for formula in formulas if formula)


def _products(style: Attention, geometry: Geometry) -> str:
    """Return the formula of the products of queries and keys, with their scale."""
    if _overrides_any(style, Attention, "scores") or not geometry.key_width:
        return style.formula() or UNKNOWN_SCORES
    root = math.sqrt(geometry.key_width)
    if math.isclose(geometry.scale * root, 1.0):
        return f"Q K^T / √d_k, √d_k = √{geometry.key_width} = {number(root)}"
    return f"Q K^T · {number(geometry.scale)}"


def _scores(products: str, positional: Positional) -> str:
    """Return the formula of the scores: the products, and the bias of the encoding if there is one."""
    if _overrides_any(positional, Positional, "bias", "content_bias", "score"):
        return "S = products + B"
    before_root, *_ = products.split("√")
    if "=" in before_root:
        return products
    return f"S = {products}"
