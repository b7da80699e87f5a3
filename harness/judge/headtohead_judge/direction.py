"""Whether larger values of a metric are better, from the words of its name."""

from __future__ import annotations

import re

from headtohead_judge.errors import HeadToHeadError

HIGHER = ("accuracy", "exact_match", "bleu", "chrf", "acc", "match", "rouge", "f1", "auc", "auroc",
          "precision", "recall", "reward", "score", "return", "win_rate", "map", "ndcg",
          "mfu", "per_second")  # fmt: skip
LOWER = ("loss", "perplexity", "ms", "mb", "seconds", "unk_rate", "error", "err", "wer", "cer", "ter", "ppl",
         "nll", "mse", "mae", "rmse", "bits_per_byte", "bpb", "bpc", "fid", "latency", "regret")  # fmt: skip
NEUTRAL = ("test", "valid", "validation", "val", "eval", "dev", "train", "final", "best", "last", "mean", "avg",
           "average", "macro", "micro", "weighted", "token", "tokens", "word", "char", "sentence", "top", "system",
           "cross", "entropy", "wall", "step", "epoch", "unpadded", "k", "l", "n")  # fmt: skip
"""Words that leave the direction of a metric as it is."""

NO_RATES = frozenset({"loss", "nll", "ppl", "perplexity", "mse", "mae", "rmse", "bpb", "bpc", "byte", "fid", "regret",
                      "entropy", "ms", "mb", "second", "seconds", "minutes", "hours", "latency", "mfu"})  # fmt: skip
"""Words of metrics that are neither fractions nor percentages."""

REVERSED = re.compile(r"^\s*1\s*/|(^|/)\s*(1\s*)?[-−–]")
"""Beginning of a name, or of its part after a slash, that negates a metric or takes its complement or inverse, such as
``1 - accuracy``."""


def direction(metric: str) -> bool:
    """Return whether larger values of a metric are better, from its name.

    The words of the name that are no `NEUTRAL` ones must all be known, and agree. Of a name with a `REVERSED`
    beginning, neither the direction of its words nor the opposite is concluded.

    Raises:
        HeadToHeadError: If the name does not determine it.
    """
    rest = f"_{'_'.join(_words(metric))}_"
    directions = set()
    for is_higher, known_words in ((False, LOWER), (True, HIGHER)):
        for known_word in sorted(known_words, key=len, reverse=True):
            if f"_{known_word}_" in rest:
                rest = rest.replace(f"_{known_word}_", "_")
                directions.add(is_higher)
    unknown = {word.rstrip("0123456789") for word in rest.split("_")}
    unknown -= {*NEUTRAL, ""}
    if len(directions) != 1 or unknown or REVERSED.search(metric):
        raise HeadToHeadError(
            f"whether more of '{metric}' is better cannot be concluded from its name; add --higher-is-better or "
            "--lower-is-better"
        )
    return directions.pop()


def has_direction(metric: str) -> bool:
    """Return whether the name of a column determines a direction, so that it is that of a metric."""
    try:
        direction(metric)
    except HeadToHeadError:
        return False
    return True


def can_be_rate(metric: str) -> bool:
    """Return whether a metric can be a fraction or a percentage, from its name."""
    return NO_RATES.isdisjoint(_words(metric))


def _words(metric: str) -> list[str]:
    """Return the words of a metric's name, in lower case."""
    return re.split(r"[/\-. _]+", metric.lower())
