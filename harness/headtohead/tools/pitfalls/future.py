"""A decoder without a causal mask: it attends to later tokens."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.tools.pitfalls.case import Case, other_word
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact


@shows("future not masked")
def future_is_read(case: Case) -> Iterator[Fact]:
    """Replace the last token of the decoder input and compare the logits of earlier positions."""
    changed = [*case.target[:-1], other_word(case.target[-1], case.words[1])]
    logits = case.logits([case.source] * 2, [case.target, changed])
    moved = float((logits[1] - logits[0])[:-1].abs().max())
    yield Fact(
        "future not masked",
        f"another last word changes the logits of the words before it by {moved:.3g}: in training "
        "the answer is read, in translating it is not there",
        {"change": moved},
    )
