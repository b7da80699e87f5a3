"""What is known of a metric by its name: which way is better, its words, how it is printed."""

from __future__ import annotations

import math
from typing import Any

LOWER_IS_BETTER = ("loss", "perplexity", "_ms", "_mb", "_seconds", "unk_rate")
COMPARABLE_ONLY_AT_EQUAL_LOSS = ("loss", "perplexity")

NAMES = {
    "exact_match": "exact match",
    "exact_match_unpadded": "exact match, one sentence at a time",
    "loss": "loss",
    "loss_unpadded": "loss, one sentence at a time",
    "token_accuracy": "token accuracy",
    "bleu": "BLEU",
    "chrf": "chrF",
}
HEADS = {"without-one": "masking one head", "only-one": "masking all heads of a layer but the best"}
ROLES = {"encoder": "encoder", "decoder": "decoder", "cross": "cross-attention"}
SPLITS = {"test": "", "valid": "validation "}


def higher_is_better(metric: str) -> bool:
    """Return whether a larger value of the metric is the better one."""
    leaf = metric.rsplit("/", 1)[-1].removesuffix("_alone")
    return not leaf.endswith(LOWER_IS_BETTER)


SPANS = {
    "exact_match": (0.0, 1.0),
    "token_accuracy": (0.0, 1.0),
    "bleu": (0.0, 100.0),
    "chrf": (0.0, 100.0),
    "loss": (0.0, math.inf),
    "perplexity": (1.0, math.inf),
}
"""The least and the largest value of scores."""


def span(metric: str) -> tuple[float, float]:
    """Return the least and the largest value of a metric; what changes by something has neither.

    >>> span("test/bleu"), span("heads/cross/only-one/loss")
    ((0.0, 100.0), (-inf, inf))
    """
    split, _, leaf = metric.rpartition("/")
    known = None if split.startswith("heads/") else SPANS.get(leaf.removesuffix("_alone"))
    return known or (-math.inf, math.inf)


def is_loss(metric: str) -> bool:
    """Return whether the metric is a loss or a perplexity, comparable only at equal vocabulary."""
    leaf = metric.rsplit("/", 1)[-1].removesuffix("_alone")
    return leaf in COMPARABLE_ONLY_AT_EQUAL_LOSS


def alone(metric: str) -> str:
    """Return the name of the same score taken one sentence at a time, without padding."""
    return f"{metric}_alone"


def readable(metric: str) -> str:
    """Return the metric in words, for example ``validation loss`` for ``valid/loss``."""
    split, _, leaf = metric.rpartition("/")
    words = NAMES.get(leaf, leaf.replace("_", " "))
    if split.startswith("heads/"):
        _, role, kept = split.split("/")
        return f"{words} changed by {HEADS[kept]}, {ROLES[role]}"
    return f"{SPLITS.get(split, split + ' ' if split else '')}{words}"


def decimals(metric: str) -> int:
    """Return how many digits after the point the metric is printed with."""
    leaf = metric.rsplit("/", 1)[-1]
    if leaf in ("bleu", "chrf"):
        return 1
    return 1 if metric.startswith("system/") else 3


def show(value: float | None, metric: str, *, signed: bool = False, digits: int = 0) -> str:
    """Return the value as the report prints it, an en dash where there is none.

    A nonzero value that would round to zero keeps its first significant digit.
    """
    if value is None or not math.isfinite(value):
        return "–"
    places = decimals(metric) + digits
    if value != 0 and abs(value) < 0.5 * 10**-places:
        places = min(12, -math.floor(math.log10(abs(value))))
    text = f"{abs(value):,.{places}f}"
    if value < 0:
        return f"−{text}"
    return f"+{text}" if signed and value > 0 else text


def label(value: Any) -> str:
    """Return an axis value in the words of the experiment file."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)


def show_p(p: float | None) -> str:
    """Return a p-value to three digits, or ``< 0.001``."""
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def show_count(value: float | None) -> str:
    """Return a large count with three significant digits: ``48.2 k``, ``1.35 M``."""
    if value is None or not math.isfinite(value):
        return "–"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            places = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:.{places}f} {unit}"
    return f"{value:.0f}"
