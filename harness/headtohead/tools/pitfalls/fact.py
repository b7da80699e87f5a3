"""A fact: a measurement on a configuration's own data and model, with a sentence about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fact:
    """The effect of one pitfall, for a reader who knows only the notebook.

    Attributes:
        pitfall: Name of the pitfall that it shows.
        sentence: With the numbers in it; or why there are none.
        numbers: By name, for programs.
        measured: False where the data is not at hand.
    """

    pitfall: str
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    measured: bool = True


def percent(share: float) -> str:
    """Return a proportion as a percentage, with enough digits to differ from 0 % and 100 %."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    return f"{100 * share:.1f} %" if 0.001 <= share <= 0.999 else f"{100 * share:.3g} %"


def counted(number: int, word: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {word if number == 1 else plural or word + 's'}"


def quoted(texts: list[str], most: int = 4) -> str:
    """Return some texts in quotation marks, and the number of omitted texts."""
    shown = ", ".join(f"'{text}'" for text in texts[:most])
    return shown + (f" and {len(texts) - most:,} more" if len(texts) > most else "")
