"""Lists of names in messages, shortened."""

from __future__ import annotations

from collections.abc import Sequence

MAX_NAMES = 5
"""Maximum number of names that a message has, by default."""

MAX_LETTERS = 80
"""Maximum number of letters of a name or value in a message."""


def first_of(texts: Sequence[str], most: int = MAX_NAMES) -> str:
    """Return the first texts and the number of the others: ``a, b and 7 more``."""
    text = ", ".join(texts[:most])
    if len(texts) > most:
        text += f" and {len(texts) - most} more"
    return text


def listed(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """Return `first_of` the names, each `shortened`."""
    return first_of([shortened(name) for name in names], most)


def shortened(text: str) -> str:
    """Return a text with at most `MAX_LETTERS` letters."""
    if len(text) <= MAX_LETTERS:
        return text
    return f"{text[:MAX_LETTERS]}…"
