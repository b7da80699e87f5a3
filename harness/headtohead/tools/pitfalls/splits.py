"""The overlap between test and training sentences of a split."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, counted, percent

DRAWS = 10


@shows("nothing held out")
def nothing_held_out(case: Case) -> Iterator[Fact]:
    """Count test sentences that are in the training set, and measure the leak of a split by rows."""
    train, test = case.data.splits["train"], case.data.splits["test"]
    known = set(train.source_text)
    seen = sum(text in known for text in test.source_text)
    yield Fact(
        "nothing held out",
        f"it is tried on its training sentences only: of {counted(len(test), 'test sentence')}, "
        f"{seen:,} {'is' if seen == 1 else 'are'} trained on",
        {"test": len(test), "trained_on": seen},
    )
    leak = _leak_by_row(train.source_text)
    if leak:
        yield Fact(
            "nothing held out",
            f"a random tenth of the rows held out would not be unseen either: {percent(leak)} of "
            f"it have a source sentence that is also trained on (mean of {DRAWS} draws)",
            {"leak_of_row_split": leak},
        )


@shows("split by rows")
def split_by_rows(case: Case) -> Iterator[Fact]:
    """Measure the leak of the split that is used."""
    leak = float(case.data.record["leak"])
    yield Fact(
        "split by rows",
        f"{percent(leak)} of the test pairs have a source sentence that is also trained on, with "
        "another translation or the same",
        {"leak": leak},
    )


def _leak_by_row(texts: list[str]) -> float:
    """Return the share of a random tenth whose text is also in the rest, averaged over draws."""
    tenth, draw, shares = len(texts) // 10, random.Random(0), []
    for _ in range(DRAWS if tenth else 0):
        shuffled = draw.sample(texts, len(texts))
        known = set(shuffled[tenth:])
        shares.append(sum(text in known for text in shuffled[:tenth]) / tenth)
    return math.fsum(shares) / DRAWS
