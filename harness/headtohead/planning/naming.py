"""Names of variants and contrasts: phrases of the axis values in which they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from headtohead.config.clauses import change_clause, joined_clause
from headtohead.config.labels import Scalar

BASELINE = "baseline"
"""The title of a variant without axes."""


class Combination(NamedTuple):
    """The labels and the phrases of the axis values of a combination, both by axis."""

    labels: Mapping[str, Scalar]
    phrases: Mapping[str, str]


def titles_of(combinations: Sequence[Combination], groups: Collection[str]) -> list[str]:
    """Return a title for each combination: the phrases of the axes in which it differs from the first, the baseline.

    Phrases of the axes ``groups`` always follow. A combination that differs in no other axis, such as the baseline,
    gets the phrases of all axes, as do combinations with equal titles.

    >>> first = Combination({"positional": "a", "model.heads": 2}, {"positional": "A", "model.heads": "2 heads"})
    >>> other = Combination({"positional": "b", "model.heads": 2}, {"positional": "B", "model.heads": "2 heads"})
    >>> titles_of([first, other], ())
    ['A, 2 heads', 'B']
    """
    baseline = combinations[0]
    titles = []
    for combination in combinations:
        changed = [axis for axis in _changed(combination, baseline) if axis not in groups]
        shown = changed or [axis for axis in combination.labels if axis not in groups]
        titles.append(_joined(combination, [*shown, *groups]))
    counts = Counter(titles)
    unique = []
    for title, combination in zip(titles, combinations, strict=True):
        unique.append(title if counts[title] == 1 else _joined(combination, combination.labels))
    return unique


def _joined(combination: Combination, axes: Collection[str]) -> str:
    """Return the phrases of some axes, each once; an axis that the combination lacks is left out."""
    phrases = dict.fromkeys(
        combination.phrases[axis] for axis in axes if axis in combination.phrases
    )
    return ", ".join(phrases) or BASELINE


def _changed(combination: Combination, against: Combination) -> list[str]:
    """Return the axes with another value."""
    return [axis for axis, label in combination.labels.items() if label != against.labels[axis]]


def clause_of(combination: Combination, against: Combination) -> str:
    """Return the clause for the change between two combinations of a design; an empty text if they are equal.

    An example is ``without biases and with rotary instead of sinusoidal``. A clause of several axes is named once.
    """
    clauses = []
    for axis in _changed(combination, against):
        clauses.append(change_clause(combination.phrases[axis], against.phrases[axis]))
    return joined_clause(list(dict.fromkeys(clauses)))


def distinct(phrases: Mapping[str, str]) -> dict[str, str]:
    """Return the phrase of each value of an axis by its label; equal phrases are followed by the label.

    >>> distinct({"a": "A", "b": "B", "b(x=1)": "B"})
    {'a': 'A', 'b': 'B, b', 'b(x=1)': 'B, b(x=1)'}
    """
    counts = Counter(phrases.values())
    names = {}
    for label, phrase in phrases.items():
        names[label] = phrase if counts[phrase] == 1 else f"{phrase}, {label}"
    return names
