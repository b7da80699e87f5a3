"""Facts: measured effects of pitfalls, each as a sentence with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fact:
    """One measured effect of a pitfall, written for readers of the notebook.

    Attributes:
        pitfall: Name of the pitfall.
        sentence: The effect with its numbers, or why it could not be measured.
        numbers: The same numbers by name, for programs.
        measured: False if the data is not available.
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


def quoted(texts: list[str], limit: int = 4) -> str:
    """Return the first texts in quotation marks, and the number of omitted texts."""
    shown = ", ".join(f"'{text}'" for text in texts[:limit])
    return shown + (f" and {len(texts) - limit:,} more" if len(texts) > limit else "")
