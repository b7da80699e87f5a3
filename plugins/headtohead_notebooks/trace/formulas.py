"""The formula of each step and its meaning in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    "positions": ("", "the vector of each position"),
    "sum": ("X = E + P", "the sum of token and position vectors, the input of the first layer"),
}

FEED_FORWARD: dict[str, Description] = {
    "inner": ("", "before the activation: each token projected to the inner width"),
    "activated": ("", "after the activation"),
    "output": ("F = f(H) W_2", "projected back to the model width"),
    "residual": ("X + F", "the input plus the output of the block"),
    "norm": ("(x − μ) / √(σ^2 + ε) · γ + β", "each token normalised to mean 0 and variance 1"),
}

ACTIVATIONS = {"relu": "f(H) = max(0, H)", "gelu": "f(H) = H · Φ(H)"}

FINAL_NORM: Description = ("(x − μ) / √(σ^2 + ε) · γ + β", "the last LayerNorm, after all layers of this side")

OUTPUT: dict[str, Description] = {
    "logits": ("X W", "a score for every word of the target vocabulary"),
    "probabilities": ("softmax(logits)", "probabilities that sum to 1 in each row"),
    "chosen": ("argmax(logits)", "the most likely word at each position"),
}


def with_bias(formula: str, bias: str, has_bias: bool) -> str:
    """Return the formula of a linear map, with its bias if the model has biases."""
    return f"{formula} + {bias}" if has_bias else formula


def block_input(pre_norm: bool) -> str:
    """Return the input of a residual block: LN(X) with pre-norm, else X."""
    return "LN(X)" if pre_norm else "X"


@dataclass(frozen=True)
class AttentionFormulas:
    """The formulas of one attention with its style and its encoding.

    Args:
        part: The attention.
        masking: Name of its masking scheme; None if nothing is masked.
        mask_value: How masked scores are computed.
        pre_norm: Whether the input is normalised first.
        bias: Whether the projections have biases.
    """

    part: MultiHeadAttention
    masking: str | None
    mask_value: str
    pre_norm: bool
    bias: bool

    def describe(self, step: str) -> Description:
        """Return formula and meaning of a step of one head or of all heads."""
        queries = self._projected("Q", block_input(self.pre_norm))
        keys = self._projected("K", self._memory)
        memory = "" if self.part.self_attention else "; Y is the output of the encoder"
        descriptions: dict[str, Description] = {
            "plain-queries": (queries, "the query of each token, before transformation"),
            "plain-keys": (keys, f"the key of each token, before transformation{memory}"),
            "queries": (self._transformed(queries), "the query of each token"),
            "keys": (self._transformed(keys), f"the key of each token{memory}"),
            "values": (self._values, f"the value of each token{memory}"),
            "products": (self._products, "scaled dot product of each query and each key"),
            "bias": (self._encoding, "the values added by the positional encoding"),
            "unmixed": (self._scores, "the scores before heads are mixed"),
            "scores": (self._mixed_scores, "score of each query (row) and each key (column)"),
            "mask": (f"M: masking '{self.masking}'", "1 where a key may be attended to, 0 where it is masked"),
            "filled": (self._filled, "scores with masked keys replaced by the mask value"),
            "unmixed-weights": (self._shares, "the weights of each map, before maps are mixed"),
            "weights": (self._weights, "how much each token (row) attends to each other (column)"),
            "output": (self._output, "the values, averaged with the weights"),
            "finished": (self._style.formula(), "the output of the head, transformed by the style"),
            "concatenation": ("Z = [Z_0, Z_1, …]", "the outputs of all heads side by side"),
            "projection": self._projection,
            "residual": ("X + O", "the input plus the output of the block"),
            "norm": FEED_FORWARD["norm"],
        }
        return descriptions[step]

    @property
    def _style(self) -> Attention:
        return self.part.style

    @property
    def _encoding(self) -> str:
        return self.part.positional.formula()

    @property
    def _memory(self) -> str:
        return block_input(self.pre_norm) if self.part.self_attention else "Y"

    def _projected(self, letter: str, x: str) -> str:
        return with_bias(f"{letter} = {x} W_{letter}", f"b_{letter}", self.bias)

    def _transformed(self, plain: str) -> str:
        parts = []
        if overrides(self._style, Attention, "transform"):
            parts.append(self._style.formula())
        if overrides(self.part.positional, Positional, "rotate"):
            parts.append(self._encoding)
        return "; ".join(part for part in parts if part) or plain

    @property
    def _values(self) -> str:
        return self._projected("V", self._memory) if self._style.projects else self._style.formula()

    @property
    def _scale(self) -> str:
        geometry = self.part.context.geometry
        root = math.sqrt(geometry.key_width)
        if math.isclose(geometry.scale * root, 1.0):
            return f" / √d_k, √d_k = √{geometry.key_width} = {number(root)}"
        return f" · {number(geometry.scale)}"

    @property
    def _products(self) -> str:
        if overrides(self._style, Attention, "scores") or not self.part.context.geometry.key_width:
            return self._style.formula() or "S: defined by the style"
        return f"Q K^T{self._scale}"

    @property
    def _mixed_scores(self) -> str:
        if overrides(self._style, Attention, "mix_scores"):
            return self._style.formula() or "S: defined by the style"
        return self._scores

    @property
    def _scores(self) -> str:
        positional = self.part.positional
        adds = overrides(positional, Positional, "bias") or overrides(positional, Positional, "score")
        if adds:
            return "S = products + B"
        plain = self._products
        return plain if "=" in plain.split("√")[0] else f"S = {plain}"

    @property
    def _filled(self) -> str:
        if not self._style.projects:
            return self._style.formula()
        masked = {"-inf": "−∞", "-1e9": "−10^9", "additive": "S − 10^9"}[self.mask_value]
        return f"S' = S where M = 1, {masked} where M = 0"

    @property
    def _weights(self) -> str:
        own = overrides(self._style, Attention, "normalise") or overrides(self._style, Attention, "mix")
        if own:
            return f"A: {self._style.formula() or 'defined by the style'}"
        return f"A = {self._shares}"

    @property
    def _shares(self) -> str:
        if not self._style.projects:
            return "softmax(filled)"
        return "softmax(S)" if self.masking is None else "softmax(S')"

    @property
    def _output(self) -> str:
        own = overrides(self.part.positional, Positional, "values")
        return f"Z = A V + {self._encoding or 'the values added by the encoding'}" if own else "Z = A V"

    @property
    def _projection(self) -> Description:
        if self._style.projects:
            return with_bias("O = Z W_O", "b_O", self.bias), "the outputs of the heads projected to the model width"
        return "O = Z", "this style has no projections"
