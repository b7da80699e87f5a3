"""The ceiling is what the best translator of bags reaches, and no such translator passes it."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headtohead.data import bag_of_words_ceiling

CORPUS = st.lists(
    st.tuples(
        st.sampled_from(["a b", "b a", "a a b", "c", "a b c", "c b a"]),
        st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True),
    ),
    min_size=1,
    max_size=12,
)


@given(CORPUS)
def test_the_best_of_all_translators_of_bags_reaches_exactly_the_ceiling(corpus: list[tuple[str, list[str]]]) -> None:
    bags = sorted({tuple(sorted(source.split())) for source, _ in corpus})
    best = 0
    for answers in product("xyz", repeat=len(bags)):
        says = dict(zip(bags, answers, strict=True))
        best = max(best, sum(says[tuple(sorted(s.split()))] in t for s, t in corpus))
    sources, references = [s for s, _ in corpus], [t for _, t in corpus]
    assert bag_of_words_ceiling(sources, references) == best / len(corpus)


def test_how_often_a_word_occurs_counts() -> None:
    assert bag_of_words_ceiling(["a a b", "a b b"], [["x"], ["y"]]) == 1.0


def test_an_empty_test_set_has_no_ceiling() -> None:
    assert bag_of_words_ceiling([], []) is None
