"""A decoder whose second attention reads the decoder itself cannot hear the source."""

from __future__ import annotations

import random
from collections.abc import Iterator

from headtohead.tools.pitfalls.case import Case, other_word
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact

SOURCES = 100


@shows("source ignored")
def deaf_decoder(case: Case) -> Iterator[Fact]:
    """Exchange the source for random others, and one target word for another."""
    draw, words = random.Random(0), case.words[0]
    others = [[draw.randrange(words) for _ in case.source] for _ in range(SOURCES)]
    logits = case.logits([case.source, *others], [case.target] * (SOURCES + 1))
    heard = float((logits[1:] - logits[0]).abs().max())
    last = [*case.target[:-1], other_word(case.target[-1], case.words[1])]
    changed = case.logits([case.source], [last])
    word = float((changed[0] - logits[0]).abs().max())
    yield Fact(
        "source ignored",
        f"the decoder does not hear the source: {SOURCES} other sources in its place change the "
        f"logits by at most {heard:.3g}, one other target word changes them by {word:.3g}",
        {"sources": SOURCES, "largest_change_by_source": heard, "change_by_target_word": word},
    )
