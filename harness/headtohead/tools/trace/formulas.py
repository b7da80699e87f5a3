"""What is said beside the numbers: the formula of each step, and the same in a sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headtohead.model.attention import MultiHeadAttention, overrides
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.tools.trace.examples import number

Said = tuple[str, str]
"""A formula and a sentence; either may be empty."""

EMBEDDING: dict[str, Said] = {
    "ids": ("", "the number of each token in the vocabulary"),
    "embeddings": ("E[id]", "each token's row of the embedding table"),
    "scaled": ("E · √d_{model}", "embeddings made large beside the positions that are added"),
    "positions": ("", "what tells a token's place"),
    "sum": ("X = E + P", "token and place in one vector; the first layer reads it"),
}

FEED_FORWARD: dict[str, Said] = {
    "inner": ("", "before the activation: each token by itself, made wider"),
    "activated": ("", "after the activation"),
    "output": ("F = f(H) W_2 + b_2", "brought back to the width of the model"),
    "residual": ("X + F", "what came in is kept, what was computed is added"),
    "norm": ("(x − μ) / √(σ^2 + ε) · γ + β", "each token brought to mean 0 and variance 1"),
}

ACTIVATIONS = {"relu": "f(H) = max(0, H)", "gelu": "f(H) = H · Φ(H)"}

FINAL_NORM: Said = ("(x − μ) / √(σ^2 + ε) · γ + β", "a last LayerNorm behind all layers of this side")

OUTPUT: dict[str, Said] = {
    "logits": ("X W + b", "a number for every word of the target vocabulary"),
    "probabilities": ("softmax(logits)", "the same as shares of one, along each row"),
    "chosen": ("argmax(logits)", "the likeliest word at each place"),
}


def incoming(normed: bool) -> str:
    """Return the letter of what flows into a branch: normalised first, or as it is."""
    return "LN(X)" if normed else "X"


@dataclass(frozen=True)
class AttentionFormulas:
    """The formulas of one attention, as its style and its encoding compute.

    Args:
        part: The attention.
        masking: Name of its masking scheme; None where nothing is masked.
        fill: How masked scores are filled.
        normed: Whether what comes in is normalised first.
    """

    part: MultiHeadAttention
    masking: str | None
    fill: str
    normed: bool

    def of(self, step: str) -> Said:
        """Return what is said of a step of one head, or of all heads together."""
        asks = self._projected("Q", incoming(self.normed))
        found_by = self._projected("K", self._read)
        whose = "" if self.part.self_attention else "; Y is what the encoder gives"
        found: dict[str, Said] = {
            "plain-queries": (asks, "what each token asks for, before it is turned"),
            "plain-keys": (found_by, f"what each token is found by, before it is turned{whose}"),
            "queries": (self._turned(asks), "what each token asks for"),
            "keys": (self._turned(found_by), f"what each token is found by{whose}"),
            "values": (self._values, f"what each token hands over{whose}"),
            "products": (self._products, "how well each question meets each key"),
            "bias": (self._encoding, "what the encoding adds: places count by themselves"),
            "unmixed": (self._scores, "the same before heads are mixed"),
            "scores": (self._mixed_scores, "how well each question meets each key"),
            "mask": (f"M: masking '{self.masking}'", "1 where a token may look, 0 where not"),
            "filled": (self._filled, "what may not be looked at is to get no weight"),
            "unmixed-weights": (self._shares, "the shares of each map, before maps are mixed"),
            "weights": (self._weights, "how much each token (row) takes from each other (column)"),
            "output": (self._output, "the values, mixed by the weights"),
            "finished": (self._style.formula(), "what the style makes of what the head has read"),
            "concatenation": ("Z = [Z_0, Z_1, …]", "the outputs of all heads side by side"),
            "projection": self._projection,
            "residual": ("X + O", "what came in is kept, what was computed is added"),
            "norm": FEED_FORWARD["norm"],
        }
        return found[step]

    @property
    def _style(self) -> Attention:
        return self.part.style

    @property
    def _encoding(self) -> str:
        return self.part.positional.formula()

    @property
    def _read(self) -> str:
        return incoming(self.normed) if self.part.self_attention else "Y"

    @staticmethod
    def _projected(letter: str, read: str) -> str:
        return f"{letter} = {read} W_{letter} + b_{letter}"

    def _turned(self, plain: str) -> str:
        parts = []
        if overrides(self._style, Attention, "transform"):
            parts.append(self._style.formula())
        if overrides(self.part.positional, Positional, "rotate"):
            parts.append(self._encoding)
        return "; ".join(part for part in parts if part) or plain

    @property
    def _values(self) -> str:
        return self._projected("V", self._read) if self._style.projects else self._style.formula()

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
            return self._style.formula() or "S: as the style has it"
        return f"Q K^T{self._scale}"

    @property
    def _mixed_scores(self) -> str:
        if overrides(self._style, Attention, "mix_scores"):
            return self._style.formula() or "S: as the style has it"
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
        put = {"-inf": "−∞", "-1e9": "−10^9", "additive": "S − 10^9"}[self.fill]
        return f"S' = S where M = 1, {put} where M = 0"

    @property
    def _weights(self) -> str:
        own = overrides(self._style, Attention, "normalise") or overrides(self._style, Attention, "mix")
        if own:
            return f"A: {self._style.formula() or 'as the style has it'}"
        return f"A = {self._shares}"

    @property
    def _shares(self) -> str:
        if not self._style.projects:
            return "softmax(filled)"
        return "softmax(S)" if self.masking is None else "softmax(S')"

    @property
    def _output(self) -> str:
        own = overrides(self.part.positional, Positional, "values")
        return f"Z = A V + {self._encoding or 'what the encoding adds'}" if own else "Z = A V"

    @property
    def _projection(self) -> Said:
        if self._style.projects:
            return "O = Z W_O + b_O", "the heads' outputs made one vector of the model's width"
        return "O = Z", "this style projects nothing"
