"""The score that no encoder without word order can pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence


def bag_of_words_ceiling(sources: Sequence[str], references: Sequence[Sequence[str]]) -> float | None:
    """Return the best exact match of a translator that sees only the bag of source words.

    Such a translator says one thing per bag. Over the bags, the largest number of sentences that
    share one accepted translation, summed, divided by the number of sentences; None without any.

    >>> bag_of_words_ceiling(["a b", "b a", "c"], [["x"], ["y"], ["z"]])
    0.6666666666666666
    """
    if not sources:
        return None
    accepted: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for source, translations in zip(sources, references, strict=True):
        accepted[tuple(sorted(source.split()))].update(set(translations))
    return sum(max(counts.values()) for counts in accepted.values()) / len(sources)
