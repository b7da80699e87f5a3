"""The grammar of phrases: clauses for a change between two phrases, and for several changes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headtohead.config.labels import joined, separable

OF = "of "
WITH = "with "
WITHOUT = "without "
ARTICLES = ("a", "an", "the")
INNER_PREPOSITION = re.compile(r"(?<! and)(?<!,) with(?:out)? ")
"""A preposition inside a clause; after *and* or a comma, it begins another phrase."""


def as_noun(phrase: str) -> str:
    """Return a phrase as a noun phrase.

    >>> as_noun("with a gated output"), as_noun("without positions"), as_noun("without an encoder")
    ('a gated output', 'no positions', 'no encoder')
    >>> as_noun("without an encoder and with 5 instead of 2 decoder layers")
    'no encoder and 5 instead of 2 decoder layers'
    """
    phrase = phrase.replace(f" and {WITH}", " and ").replace(f", {WITH}", ", ")
    if not phrase.startswith(WITHOUT):
        return phrase.removeprefix(WITH)
    noun = phrase.removeprefix(WITHOUT)
    article, _, rest = noun.partition(" ")
    return f"no {rest if article in ARTICLES else noun}"


def with_brackets(phrase: str) -> str:
    """Return a phrase with its options in brackets, so that words can follow.

    >>> with_brackets("rotary with base 500"), with_brackets("rotary")
    ('rotary (base 500)', 'rotary')
    """
    noun, preposition, options = phrase.partition(f" {WITH}")
    return f"{noun} ({options})" if preposition else phrase


def has_preposition(clause: str) -> bool:
    """Return whether a clause starts with ``with`` or ``without``, and so needs no further word before it."""
    return clause.startswith((WITH, WITHOUT))


def contains_preposition(clause: str) -> bool:
    """Return whether ``with`` or ``without`` is inside a clause, so that another one before it would be confusing.

    >>> contains_preposition("2 instead of 4 heads with width 64")
    True
    >>> contains_preposition("without biases and with 2 instead of 4 heads")
    False
    """
    return INNER_PREPOSITION.search(clause) is not None


def with_preposition(clause: str) -> str:
    """Return a clause that starts with ``with`` or ``without``: itself, or with ``with`` before it."""
    return clause if has_preposition(clause) else WITH + clause


def change_clause(value: str, against: str) -> str:
    """Return the clause for a change to the phrase ``value`` from the phrase ``against``.

    >>> change_clause("without positions", "rotary"), change_clause("rotary", "without positions")
    ('without positions', 'rotary instead of no positions')
    >>> change_clause("with value residual", "with a gated output")
    'with value residual instead of a gated output'
    >>> change_clause("rotary with 25 % of the components rotated", "rotary")
    'with 25 % of the components rotated'
    >>> change_clause("rotary with base 500", "sinusoidal")
    'rotary (base 500) instead of sinusoidal'
    >>> change_clause("rotary with base 500", "rotary with base 99")
    'rotary (base 500 instead of 99)'
    """
    if value.startswith((f"{against} {WITH}", f"{against} {WITHOUT}")):
        return value.removeprefix(f"{against} ")
    if value.startswith(WITHOUT):
        return value
    if value.startswith(WITH):
        if against.startswith(WITH):
            return WITH + _instead(as_noun(value), as_noun(against))
        return value
    return _instead_with_options(value, as_noun(against))


def _instead_with_options(value: str, against: str) -> str:
    """Return ``A instead of B`` with options in brackets: those of both once if the phrases differ in them alone."""
    noun, _, options = value.partition(f" {WITH}")
    other_noun, _, other_options = against.partition(f" {WITH}")
    if not options and not other_options:
        return _instead(value, against)
    if options and other_options and noun == other_noun:
        return f"{noun} ({_instead(options, other_options)})"
    return f"{with_brackets(value)} instead of {with_brackets(against)}"


def _instead(value: str, against: str) -> str:
    """Return ``A instead of B`` with the words that both share at the beginning or at the end once.

    Of each phrase, a word remains between the shared ones; an article stays with the word after it.

    >>> _instead("independent heads", "split heads"), _instead("width 64", "width 32")
    ('independent instead of split heads', 'width 64 instead of 32')
    >>> _instead("a window of 8 tokens", "a window of 16 tokens"), _instead("a causal mask", "a padding mask")
    ('a window of 8 instead of 16 tokens', 'a causal instead of a padding mask')
    >>> _instead("a padding mask", "a padding and causal mask")
    'a padding instead of a padding and causal mask'
    """
    words = value.split()
    other_words = against.split()
    max_shared = min(len(words), len(other_words)) - 1
    num_first = 0  # shared words at the beginning
    while num_first < max_shared and words[num_first] == other_words[num_first]:
        if words[num_first][0].isdigit():  # "4 heads" and "4 layers" share a number, not a word
            break
        num_first += 1
    if "and" in (words[num_first], other_words[num_first]):
        num_first = 0  # the words before "and" stay with those after it
    if num_first and words[num_first - 1] in ARTICLES:
        num_first -= 1
    num_last = 0  # shared words at the end
    while num_last < max_shared - num_first and words[-1 - num_last] == other_words[-1 - num_last]:
        num_last += 1
    for phrase in (words, other_words):
        between = phrase[num_first : len(phrase) - num_last]
        if num_last and {*between} <= {*ARTICLES}:
            num_last -= 1  # "a causal mask" and "a padding and causal mask" share one word
    beginning = words[: len(words) - num_last]
    replaced = other_words[num_first : len(other_words) - num_last]
    ending = words[len(words) - num_last :]
    return " ".join([*beginning, "instead of", *replaced, *ending])


def joined_clause(clauses: Sequence[str]) -> str:
    """Return one clause for several changes; if one has a preposition, it comes first, and the others get ``with``.

    >>> joined_clause(["rotary instead of sinusoidal", "4 instead of 2 heads"])
    'rotary instead of sinusoidal and 4 instead of 2 heads'
    >>> joined_clause(["rotary instead of sinusoidal", "without biases"])
    'without biases and with rotary instead of sinusoidal'
    """
    ordered = list(clauses)
    if any(map(has_preposition, clauses)):
        ordered = [with_preposition(clause) for clause in clauses]
        ordered.sort(key=lambda clause: clause not in clauses)  # phrases of their own first
    if len(ordered) < 3:
        return " and ".join(ordered)
    return f"{', '.join(ordered[:-1])}, and {ordered[-1]}"


def of_phrases(phrases: Sequence[str], most: int | None = None) -> str:
    """Return phrases as they follow a noun: after ``of``, those with a preposition without it and last.

    Args:
        phrases: At least one phrase.
        most: The maximum number of phrases, as in `listed`.

    >>> of_phrases(["rotary", "sinusoidal"]), of_phrases(["without positions"])
    ('of rotary and sinusoidal', 'without positions')
    >>> of_phrases(["without positions", "rotary", "with biases"])
    'of rotary, without positions and with biases'
    >>> of_phrases(["rotary, with biases", "sinusoidal"])
    'of “rotary, with biases” and sinusoidal'
    """
    ordered = sorted(phrases, key=has_preposition)
    names = separable(ordered)
    if not has_preposition(ordered[0]):
        names[0] = OF + names[0]
    return joined(names, most)


def within(clause: str, setting: str) -> str:
    """Return a clause with the setting in which the change is made.

    >>> within("independent instead of split heads", "width 64"), within("without positions", "width 64")
    ('independent instead of split heads with width 64', 'without positions (width 64)')
    """
    if not setting:
        return clause
    is_long = " and " in clause or f" {WITH}" in setting or ", " in setting
    if has_preposition(clause) or is_long:
        return f"{clause} ({setting})"
    return f"{clause} {with_preposition(setting)}"


def capitalised(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def lead(clause: str) -> str:
    """Return a clause as the beginning of a sentence, before a comma: ``With rotary instead of sinusoidal``."""
    return capitalised(with_preposition(clause))
