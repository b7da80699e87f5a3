"""Positions by batch row: the output depends on the row, not on word order."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.errors import HeadToHeadError
from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact

COPIES = 8
MOST_ROWS = 4_096


@shows("positions by batch row")
def positions_by_batch_row(case: Case) -> Iterator[Fact]:
    """Reverse a sentence, repeat it in a batch, and find the largest batch."""
    words, end = case.source[:-1], case.source[-1:]
    turned = [*words[::-1], *end]
    same = case.logits([case.source], [case.target])
    order = float((case.logits([turned], [case.target]) - same).abs().max())
    yield Fact(
        "positions by batch row",
        f"the encoder does not depend on word order: reversing the {len(words)} words of a sentence "
        f"changes the logits by {order:.3g}",
        {"change_by_order": order},
    )
    batch = case.logits([case.source] * COPIES, [case.target] * COPIES)
    row = float((batch - batch[0]).abs().max())
    yield Fact(
        "positions by batch row",
        f"the encoder depends on the batch row instead: the same sentence in {COPIES} rows of a batch has "
        f"logits that differ by up to {row:.3g}; a sentence translated alone is always in row 0",
        {"copies": COPIES, "change_by_row": row},
    )
    most = _most_rows(case)
    yield Fact(
        "positions by batch row",
        f"batches have at most {most} sentences: {most + 1} raise an error, since the table has no more rows",
        {"most_rows": most, "more_rows": most + 1},
    )


def _most_rows(case: Case) -> int:
    """Return the size of the largest batch the model accepts, by bisection."""
    low, high = COPIES, MOST_ROWS
    while low < high:
        middle = (low + high + 1) // 2
        if _computes(case, middle):
            low = middle
        else:
            high = middle - 1
    return low


def _computes(case: Case, rows: int) -> bool:
    try:
        case.logits([case.source[-1:]] * rows, [case.target[:1]] * rows)
    except (HeadToHeadError, IndexError, RuntimeError):
        return False
    return True
