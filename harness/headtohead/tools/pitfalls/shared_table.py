"""One embedding table for two vocabularies: words of both languages share rows by accident."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, quoted


@shows("one table, two vocabularies")
def one_table(case: Case) -> Iterator[Fact]:
    """Count the ids that mean one word in the source and another in the target."""
    source, target = case.data.source_vocabulary.words, case.data.target_vocabulary.words
    rows = max(len(source), len(target))
    clashes = [f"{one} = {other}" for one, other in zip(source, target, strict=False) if one != other]
    yield Fact(
        "one table, two vocabularies",
        f"one vocabulary size, {rows}, serves both languages: {len(clashes)} rows of the table "
        f"embed a source word and another target word, so {quoted(clashes)} start from the same "
        "numbers",
        {"rows": rows, "source_words": len(source), "target_words": len(target), "rows_with_two_words": len(clashes)},
    )
