"""Splits never divide a group, whatever the corpus."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headtohead.data.splits import components, divide, leak, shuffled, text_leak
from headtohead.errors import HeadToHeadError

ROWS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 30)), min_size=1, max_size=40
)


def naive_components(rows: list[tuple[int, int, int]]) -> list[set[int]]:
    """Grow each group until no row outside shares a value with a row inside."""
    remaining, groups = set(range(len(rows))), []
    while remaining:
        group = {remaining.pop()}
        while True:
            near = {
                row
                for row in remaining
                for inside in group
                if any(a == b for a, b in zip(rows[row], rows[inside], strict=True))
            }
            if not near:
                break
            group |= near
            remaining -= near
        groups.append(group)
    return groups


@given(ROWS)
def test_components_are_those_of_the_naive_search(rows: list[tuple[int, int, int]]) -> None:
    labels = components(*[[str(value) for value in column] for column in zip(*rows, strict=True)])
    groups = [set(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)]
    assert sorted(map(sorted, groups)) == sorted(map(sorted, naive_components(rows)))


@given(ROWS, st.integers(1, 1000), st.floats(0.05, 0.4), st.floats(0.05, 0.4))
def test_no_group_is_in_two_splits(
    rows: list[tuple[int, int, int]], seed: int, valid: float, test: float
) -> None:
    labels = components(*[[str(value) for value in column] for column in zip(*rows, strict=True)])
    try:
        parts = divide(labels, [None] * len(rows), valid=valid, test=test, seed=seed)
    except HeadToHeadError as error:
        assume("leaves no pair for" not in str(error))
        raise
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(len(rows)))
    for column in range(3):
        values = [{rows[row][column] for row in part.tolist()} for part in parts.values()]
        assert sum(map(len, values)) == len(set.union(*values))
    assert len(parts["test"]) <= max(1, round(test * len(rows)))


def test_a_group_too_large_for_a_split_is_assigned_to_train() -> None:
    labels = np.array([0] * 90 + list(range(1, 11)))
    for seed in range(20):
        parts = divide(labels, [None] * 100, valid=0.05, test=0.05, seed=seed)
        assert (len(parts["valid"]), len(parts["test"])) == (5, 5)
        assert set(range(90)) <= set(parts["train"].tolist())


def test_pairs_keep_the_split_of_the_dataset() -> None:
    chosen = ["test"] * 30 + [None] * 70
    parts = divide(np.arange(100), chosen, valid=0.1, test=0.5, seed=1)
    assert parts["test"].tolist() == list(range(30))
    assert len(parts["valid"]) == 7
    with pytest.raises(
        HeadToHeadError,
        match=r"^every pair has a part, and none is for valid; add pairs for valid$",
    ):
        divide(np.arange(2), ["train", "test"], valid=0.1, test=0.1, seed=1)


def test_a_part_of_an_unknown_name_is_refused() -> None:
    chosen = [*[None] * 99, "validation"]
    with pytest.raises(HeadToHeadError, match="part 'validation'; expected train, valid or test"):
        divide(np.arange(100), chosen, valid=0.1, test=0.1, seed=1)


def test_splits_depend_on_the_seed_only() -> None:
    labels, chosen = np.arange(200), [None] * 200
    first, same, other = (
        divide(labels, chosen, valid=0.1, test=0.1, seed=seed) for seed in (1, 1, 2)
    )
    assert first["test"].tolist() == same["test"].tolist() != other["test"].tolist()
    assert shuffled(8, 1).tolist() == [7, 2, 1, 6, 0, 4, 3, 5]


@pytest.mark.parametrize("part", ["valid", "test", "train"])
def test_an_empty_split_is_refused(part: str) -> None:
    sizes = {"valid": 0.1, "test": 0.1} | ({part: 50} if part != "train" else {"test": 100})
    labels = np.zeros(100, dtype=np.int64) if part != "train" else np.arange(100)
    with pytest.raises(HeadToHeadError, match=r"^the split leaves no pair for \w+: of 100 pairs"):
        divide(labels, [None] * 100, valid=sizes["valid"], test=sizes["test"], seed=1)


def test_leak_is_the_fraction_of_test_sentences_in_train() -> None:
    assert leak(["a", "b"], ["a", "c", "a", "d"]) == 0.5
    assert leak(["a"], ["b"]) == 0.0


def test_the_leak_of_a_text_is_the_fraction_of_its_tokens_in_windows_of_training() -> None:
    generator = np.random.default_rng(1)
    train, test = generator.integers(0, 1000, 5000), generator.integers(0, 1000, 1000)
    test[100:170] = train[2000:2070]
    test[500:564] = train[64:128]
    assert text_leak(train, test) == (70 + 64) / 1000
    test[530] = 1000
    assert text_leak(train, test) == 70 / 1000
    assert text_leak(train, generator.integers(0, 1000, 1000)) == 0.0


def test_the_share_of_leaked_tokens_weights_examples_by_their_tokens() -> None:
    assert leak(["a"], ["a", "b", "c"], weights=[6.0, 1.0, 1.0]) == 0.75
