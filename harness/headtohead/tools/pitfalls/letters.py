"""Letters that normalisation replaces by spaces, which splits words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headtohead.data import read_corpus
from headtohead.data.normalise import normaliser
from headtohead.tools.pitfalls.case import Case
from headtohead.tools.pitfalls.evidence import shows
from headtohead.tools.pitfalls.fact import Fact, percent


@shows("letters lost")
def letters_destroyed(case: Case) -> Iterator[Fact]:
    """Count the rows with a letter that normalisation removes."""
    case.require_data()
    corpus = read_corpus(case.config.data, case.cache, registry=case.registry)
    normalise = normaliser(case.config.data.normalise or "none")
    lost = {
        letter
        for letter in {letter for pair in corpus.pairs for letter in pair.source + pair.target}
        if letter.isalpha() and not normalise(letter).strip()
    }
    rows: Counter[str] = Counter()
    hit, example = 0, ""
    for pair in corpus.pairs:
        found = lost & {*pair.source, *pair.target}
        rows.update(found)
        hit += bool(found)
        example = example or next((word for word in pair.target.split() if found & set(word)), "")
    share = hit / len(corpus.pairs)
    worst = ", ".join(f"{letter} in {count:,}" for letter, count in rows.most_common(3))
    shown = f": '{example}' becomes '{normalise(example)}'" if example else ""
    yield Fact(
        "letters lost",
        f"{percent(share)} of the rows ({hit:,} of {len(corpus.pairs):,}) have a letter that "
        f"becomes a space ({worst or 'none'}){shown}",
        {"rows": len(corpus.pairs), "rows_hit": hit, "share": share},
    )
