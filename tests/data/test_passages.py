"""Passages of a text: disjoint, spread, at lines, and of the stated sizes, for any text."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headtohead.data import Passage, last_passages, spread_passages
from headtohead.data.passages import MIN_LENGTH, PASSAGES

HELD_OUT = st.one_of(st.none(), st.floats(0.001, 1.0))


def lines_of(length: int, seed: int, longest: int = 120) -> list[int]:
    starts = np.cumsum(np.random.default_rng(seed).integers(1, longest, length // 10 + 1))
    in_text: list[int] = starts[starts < length].tolist()
    return in_text


def divided(
    length: int, held_out: float | None = None, lines: int | None = 1, **changes: int
) -> list[Passage]:
    line_starts = [] if lines is None else lines_of(length, lines)
    options = {"block": 64, "token_size": 1, "seed": 1} | changes
    return spread_passages(length, held_out, line_starts, **options)


def sizes(passages: list[Passage]) -> dict[str, list[int]]:
    by_part: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
    for part, start, end in passages:
        by_part[part].append(end - start)
    return by_part


@given(st.integers(0, 200_000), HELD_OUT, st.sampled_from([None, 1, 2]), st.integers(0, 50))
def test_every_position_is_in_exactly_one_passage(
    length: int, held_out: float | None, lines: int | None, seed: int
) -> None:
    passages = divided(length, held_out, lines, seed=seed)
    assert passages[0].start == 0
    assert passages[-1].end == length
    assert all(before.end == after.start for before, after in pairwise(passages))
    assert all(start <= end for _, start, end in passages)
    by_part = sizes(passages)
    assert len(by_part["valid"]) == len(by_part["test"]) <= PASSAGES
    if held_out == 1.0:
        assert by_part["train"] == []


@given(st.integers(60_000, 3_000_000), st.sampled_from([None, 1]), st.integers(0, 50))
def test_by_default_a_text_has_twenty_passages_of_each_part_at_most_a_fifth_and_a_hundred_thousand_tokens(
    length: int, lines: int | None, seed: int
) -> None:
    by_part = sizes(divided(length, None, lines, seed=seed))
    assert len(by_part["valid"]) == len(by_part["test"]) == PASSAGES
    held_out = sum(by_part["valid"]) + sum(by_part["test"])
    assert held_out <= 0.2 * length
    assert held_out >= min(100_000, 0.196 * length)
    assert held_out >= 0.099 * length
    assert min(by_part["valid"] + by_part["test"]) >= 0.7 * held_out / 40


@given(st.integers(60_000, 500_000), st.integers(0, 50))
def test_every_fortieth_of_the_text_has_a_held_out_passage(length: int, seed: int) -> None:
    passages = [
        passage for passage in divided(length, None, None, seed=seed) if passage.part != "train"
    ]
    for index, (part, start, end) in enumerate(passages):
        assert index * length / 40 - 1 <= start < end <= (index + 1) * length / 40 + 1
        assert part != passages[index ^ 1].part


@given(st.integers(60_000, 500_000), st.integers(0, 50))
def test_cuts_are_at_lines_where_a_line_begins_within_an_eighth_of_a_passage(
    length: int, seed: int
) -> None:
    starts = {0, *lines_of(length, 1)}
    # A passage has at least 300 positions, and a line at most 120.
    is_at_line = [passage.start in starts for passage in divided(length, None, 1, seed=seed)]
    assert np.mean(is_at_line) > 0.5
    short_lines = list(range(0, length, 20))
    passages = spread_passages(length, None, short_lines, block=64, token_size=1, seed=seed)
    assert all(start % 20 == 0 for _, start, _ in passages)


def test_the_same_seed_gives_the_same_passages_and_others_do_not() -> None:
    assert divided(100_000) == divided(100_000) != divided(100_000, seed=2)


@pytest.mark.parametrize(
    ("length", "block", "number"),
    [(26_000, 64, 20), (5_000, 64, 3), (26_000, 300, 8), (100, 64, 1)],
)
def test_a_passage_has_at_least_a_block_so_short_texts_have_fewer(
    length: int, block: int, number: int
) -> None:
    by_part = sizes(divided(length, None, None, block=block))
    assert len(by_part["test"]) == number
    if number > 1:
        assert min(by_part["test"]) >= max(block + 1, MIN_LENGTH) - 1


def test_subwords_need_more_characters() -> None:
    by_part = sizes(divided(3_000_000, None, None, token_size=4))
    assert sum(by_part["test"]) == pytest.approx(200_000, rel=0.01)


def test_the_last_passages_are_the_end_of_the_text() -> None:
    tenth = [Passage("train", 0, 900), Passage("valid", 900, 950), Passage("test", 950, 1000)]
    assert last_passages(1000, None) == tenth
    assert last_passages(1000, 0.5)[1:] == [Passage("valid", 500, 750), Passage("test", 750, 1000)]
