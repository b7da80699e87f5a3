"""The upper bound equals the score of the best model whose output depends on the bag of words only."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headtohead.data import bag_of_words_upper_bound

CORPUS = st.lists(
    st.tuples(
        st.sampled_from(["a b", "b a", "a a b", "c", "a b c", "c b a"]),
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True),
    ),
    min_size=1,
    max_size=12,
)


@given(CORPUS)
def test_the_bound_is_the_best_score_of_all_functions_of_the_bag(corpus: list[tuple[str, list[str]]]) -> None:
    distinct = dict(corpus)
    bags = sorted({tuple(sorted(source.split())) for source in distinct})
    best = 0
    for outputs in product("xyz", repeat=len(bags)):
        output = dict(zip(bags, outputs, strict=True))
        best = max(best, sum(output[tuple(sorted(s.split()))] in t for s, t in distinct.items()))
    repeated = [(source, distinct[source]) for source, _ in corpus]
    assert bag_of_words_upper_bound(*zip(*repeated, strict=True)) == best / len(distinct)
