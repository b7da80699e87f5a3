"""Upper bound of the score of an encoder without word order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence


def bag_of_words_upper_bound(sources: Sequence[str], references: Sequence[Sequence[str]]) -> float | None:
    """Return the best exact match of a model whose output depends on the bag of source words only.

    Such a model has one output per bag of words. The bound is the sum over bags of the largest
    number of sentences that accept the same translation, divided by the number of sentences; None
    without sentences. A repeated sentence counts once, as in exact match.

    >>> bag_of_words_upper_bound(["a b", "b a", "c", "c"], [["x"], ["y"], ["z"], ["z"]])
    0.6666666666666666
    """
    distinct = dict(zip(sources, references, strict=True))
    accepted: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for source, translations in distinct.items():
        accepted[tuple(sorted(source.split()))].update(set(translations))
    return sum(max(counts.values()) for counts in accepted.values()) / len(distinct) if distinct else None
