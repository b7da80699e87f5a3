"""Properties of metrics by name: direction, range, readable name and number format."""

from __future__ import annotations

import math
from functools import cache
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
    """Return whether larger values of the metric are better."""
    leaf = metric.rsplit("/", 1)[-1].removesuffix("_unpadded")
    return not leaf.endswith(LOWER_IS_BETTER)


RANGES = {
    "exact_match": (0.0, 1.0),
    "token_accuracy": (0.0, 1.0),
    "bleu": (0.0, 100.0),
    "chrf": (0.0, 100.0),
    "loss": (0.0, math.inf),
    "perplexity": (1.0, math.inf),
}
"""The minimum and maximum of scores."""

ROUNDING = 1e-6
"""Tolerance of ranges: sacreBLEU returns 100.00000000000004 for equal texts."""


@cache
def span(metric: str) -> tuple[float, float]:
    """Return the minimum and maximum of a metric; effects of masking heads are unbounded.

    >>> span("test/bleu"), span("heads/cross/only-one/loss")
    ((0.0, 100.0), (-inf, inf))
    """
    split, _, leaf = metric.rpartition("/")
    known = None if split.startswith("heads/") else RANGES.get(leaf.removesuffix("_unpadded"))
    return known or (-math.inf, math.inf)


def in_range(metric: str, value: object) -> bool:
    """Return whether a value is missing (None or NaN) or a number in the range of the metric.

    >>> in_range("test/exact_match", 0.5), in_range("test/exact_match", 1.5), in_range("valid/loss", "0.5")
    (True, False, False)
    """
    if value is None:
        return True
    if type(value) is int:
        value = float(value) if abs(value) < 2**63 else None
    if type(value) is not float:
        return False
    low, high = span(metric)
    return value != value or low - ROUNDING <= value <= high + ROUNDING


def is_loss(metric: str) -> bool:
    """Return whether the metric is a loss or a perplexity, which are comparable only at equal vocabularies."""
    leaf = metric.rsplit("/", 1)[-1].removesuffix("_unpadded")
    return leaf in COMPARABLE_ONLY_AT_EQUAL_LOSS


def unpadded(metric: str) -> str:
    """Return the name of the same score measured with batches of a single sentence, which have no padding."""
    return f"{metric}_unpadded"


def readable(metric: str) -> str:
    """Return the readable name of a metric, for example ``validation loss`` for ``valid/loss``."""
    split, _, leaf = metric.rpartition("/")
    words = NAMES.get(leaf, leaf.replace("_", " "))
    if split.startswith("heads/"):
        _, role, effect = split.split("/")
        return f"{words} changed by {HEADS[effect]}, {ROLES[role]}"
    return f"{SPLITS.get(split, split + ' ' if split else '')}{words}"


def decimals(metric: str) -> int:
    """Return the number of printed decimals of a metric."""
    leaf = metric.rsplit("/", 1)[-1]
    if leaf in ("bleu", "chrf"):
        return 1
    return 1 if metric.startswith("system/") and leaf != "mfu" else 3


def show(value: float | None, metric: str, *, signed: bool = False, digits: int = 0) -> str:
    """Format a value for reports; a missing value is an en dash.

    A nonzero value that would round to zero is printed with its first significant digit.
    """
    if value is None or not math.isfinite(value):
        return "–"
    precision = decimals(metric) + digits
    if value != 0 and abs(value) < 0.5 * 10**-precision:
        precision = min(12, -math.floor(math.log10(abs(value))))
    text = f"{abs(value):,.{precision}f}"
    if value < 0:
        return f"−{text}"
    return f"+{text}" if signed and value > 0 else text


def label(value: Any) -> str:
    """Return an axis value as the experiment file writes it."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "true", False: "false"}[value]
    return str(value)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, with a plural s unless the number is 1."""
    return f"{number:,} {noun if number == 1 else noun + 's'}"


def show_p(p: float | None) -> str:
    """Format a p-value with three decimals, or as ``< 0.001``."""
    if p is None or math.isnan(p):
        return "–"
    return "< 0.001" if p < 0.0005 else f"{p:.3f}"


def show_count(value: float | None) -> str:
    """Format a large count with three significant digits: ``48.2 k``, ``1.35 M``."""
    if value is None or not math.isfinite(value):
        return "–"
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            scaled = value / size
            precision = 2 if abs(scaled) < 10 else 1 if abs(scaled) < 100 else 0
            return f"{scaled:.{precision}f} {unit}"
    return f"{value:.0f}"
