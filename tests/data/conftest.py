"""Small corpora."""

from collections.abc import Callable

import pytest

from headtohead.plugins.dataset import Corpus, Pair


@pytest.fixture
def make_corpus() -> Callable[..., Corpus]:
    """Build a corpus of (source, target), (source, target, group) or (source, target, group, split)."""

    def make(*rows: tuple[str, ...]) -> Corpus:
        pairs = [Pair(row[0], row[1], *(row[2:] or (row[0],))) for row in rows]
        return Corpus(pairs, "CC0", "nobody", ("English", "French"))

    return make
