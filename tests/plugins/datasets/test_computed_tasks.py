"""copy, reverse, sort, lookup and addition: every answer worked out again, every part apart."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from headtohead.data import PreparedData, bag_of_words_ceiling
from headtohead.errors import HeadToHeadError
from headtohead.plugins.dataset import Corpus

Prepare = Callable[..., PreparedData]
Read = Callable[..., Corpus]
Question = Callable[[str], object]


def repeated(source: str) -> str:
    return source


def read_backwards(source: str) -> str:
    said = source.split()
    return " ".join(said[place] for place in range(len(said) - 1, -1, -1))


def counted_out(source: str) -> str:
    """Sort by counting, smallest first."""
    times = Counter(int(number) for number in source.split())
    return " ".join(" ".join([str(number)] * times[number]) for number in range(1000) if times[number])


def looked_up(source: str) -> str:
    listed, queries = source.split(" ? ")
    found = []
    for query in queries.split():
        after = listed.split(f"{query} ", 1)[1]
        found.append(after.split()[0])
    return " ".join(found)


def carried(source: str) -> str:
    """Add column by column, as on paper."""
    one, two = ([int(digit) for digit in number.split()] for number in source.split(" + "))
    assert len(one) == len(two)
    written, carry = [], 0
    for a, b in zip(reversed(one), reversed(two), strict=True):
        carry, digit = divmod(a + b + carry, 10)
        written.insert(0, digit)
    return " ".join(map(str, [1, *written] if carry else written))


def length_of(name: str, source: str) -> int:
    tokens = len(source.split())
    if name == "lookup":
        return (len(source.split(" ? ")[0].split())) // 2
    return (tokens - 1) // 2 if name == "addition" else tokens


TRUTH: dict[str, Callable[[str], str]] = {
    "copy": repeated,
    "reverse": read_backwards,
    "sort": counted_out,
    "lookup": looked_up,
    "addition": carried,
}
LONGEST = {"copy": 10, "reverse": 10, "sort": 10, "lookup": 5, "addition": 4}
SAME: dict[str, Question] = {
    "copy": str,
    "reverse": str,
    "sort": lambda source: tuple(sorted(source.split())),
    "lookup": lambda source: (
        frozenset(zip(*[iter(source.split(" ? ")[0].split())] * 2, strict=True)),
        source.split(" ? ")[1],
    ),
    "addition": lambda source: frozenset(source.split(" + ")),
}
"""What two sources have in common that ask the same."""


@pytest.fixture(params=[1500, pytest.param(6000, marks=pytest.mark.slow)])
def size(request: pytest.FixtureRequest) -> int:
    """The number of pairs; the slow tier adds the one that is the default of the option."""
    number: int = request.param
    return number


@pytest.mark.parametrize("split", ["iid", "length"])
@pytest.mark.parametrize("name", TRUTH)
def test_every_answer_is_the_right_one(name: str, split: str, size: int, read: Read) -> None:
    corpus = read(name, split, size=size)
    assert len(corpus.pairs) >= size
    for pair in corpus.pairs:
        assert pair.target == TRUTH[name](pair.source), pair.source


def test_a_reversed_sum_is_written_from_its_units_on(read: Read) -> None:
    for pair in read("addition", reverse=True).pairs:
        assert pair.target[::-1] == carried(pair.source)


def test_several_queries_are_answered_in_their_order(read: Read) -> None:
    pairs = read("lookup", queries=3, shortest=3).pairs
    assert {len(pair.target.split()) for pair in pairs} == {3}
    for pair in pairs:
        assert pair.target == looked_up(pair.source)
        queries = pair.source.split(" ? ")[1].split()
        assert len(set(queries)) == 3


@pytest.mark.parametrize("name", TRUTH)
def test_no_question_is_drawn_twice_nor_stands_on_two_sides(name: str, size: int, prepared: Prepare) -> None:
    for split in ("iid", "length"):
        data = prepared(name, split=split, options={"size": size})
        asked = {part: [SAME[name](source) for source in one.source_text] for part, one in data.splits.items()}
        for part, questions in asked.items():
            assert len(set(questions)) == len(questions), (split, part)
        assert not set(asked["train"]) & (set(asked["test"]) | set(asked["valid"]))
        assert not set(asked["valid"]) & set(asked["test"])
        assert data.record["leak"] == 0.0
        assert not data.record["leaky"]


@pytest.mark.parametrize("name", TRUTH)
def test_split_iid_divides_as_data_valid_and_test_ask(name: str, size: int, prepared: Prepare) -> None:
    counts = prepared(name, valid=0.1, test=300, options={"size": size}).record["counts"]
    assert counts == {"train": size - size // 10 - 300, "valid": size // 10, "test": 300}


@pytest.mark.parametrize("name", TRUTH)
def test_split_length_trains_up_to_l_and_tests_up_to_twice_l(name: str, size: int, prepared: Prepare) -> None:
    longest = LONGEST[name]
    data = prepared(name, split="length", options={"test_each": 40, "size": size})
    splits = data.splits
    lengths = {part: Counter(length_of(name, source) for source in one.source_text) for part, one in splits.items()}
    assert set(lengths["train"]) == set(range(1, longest + 1))
    tokens = max(len(source.split()) for source in splits["train"].source_text)
    assert data.record["longest_in_train"] == tokens
    assert max(lengths["valid"]) <= longest
    test = lengths["test"]
    assert max(test) == 2 * longest
    assert all(test[length] == 40 for length in range(longest, 2 * longest + 1))
    assert sum(test[length] for length in range(1, longest + 1)) > 40
    assert all(test[length] <= 40 for length in test)


@pytest.mark.parametrize("name", ["copy", "reverse", "sort"])
def test_a_length_of_which_there_are_few_keeps_most_of_them_in_training(name: str, prepared: Prepare) -> None:
    """Of the ten sources of one symbol, two are tested: the rest would not be learnt."""
    splits = prepared(name, split="length").splits
    single = {part: sum(len(source.split()) == 1 for source in one.source_text) for part, one in splits.items()}
    assert single["test"] == 2
    assert single["train"] + single["valid"] == 8


@pytest.mark.parametrize("name", TRUTH)
def test_the_same_seed_draws_the_same_and_another_does_not(name: str, size: int, read: Read) -> None:
    one, same, other = (read(name, size=size, seed=seed) for seed in (1, 1, 2))
    assert one.data_hash == same.data_hash
    assert list(one.pairs) == list(same.pairs)
    assert one.data_hash != other.data_hash


FROZEN = {
    "copy": "2b68ae09d57dec5e",
    "reverse": "989ffe684e186519",
    "sort": "2f7f85daaa36c0cc",
    "lookup": "5b158f00f3bae4b0",
    "addition": "e78a71a54cbe5782",
}
"""Beginnings of fingerprints: a change of the draw would be other data under the same options."""


@pytest.mark.parametrize("name", FROZEN)
def test_the_draw_stays_what_it_is(name: str, read: Read) -> None:
    assert read(name, "length").data_hash[:16] == FROZEN[name]


def test_lengths_hold_equally_many_pairs_as_far_as_there_are(read: Read) -> None:
    counts = Counter(len(pair.source.split()) for pair in read("copy").pairs)
    assert counts[1] == 10
    assert counts[2] == 100
    rest = [counts[length] for length in range(3, 11)]
    assert sum(rest) == 6000 - 110
    assert max(rest) - min(rest) <= 1


def test_distinct_symbols_never_stand_twice(read: Read) -> None:
    corpus = read("reverse", distinct=True, alphabet=12)
    for pair in corpus.pairs:
        assert len(set(pair.source.split())) == len(pair.source.split())


def orders_of(corpus: Corpus) -> dict[tuple[str, ...], set[str]]:
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for pair in corpus.pairs:
        found[tuple(sorted(pair.source.split()))].add(pair.source)
    return found


@pytest.mark.parametrize("length", [3, 4])
def test_with_all_orders_no_bag_of_symbols_passes_one_in_n_factorial(
    length: int, prepared: Prepare, read: Read
) -> None:
    options: dict[str, Any] = {
        "distinct": True,
        "all_orders": True,
        "alphabet": 12,
        "shortest": length,
        "longest": length,
        "size": 1200,
    }
    orders = orders_of(read("reverse", **options))
    assert {len(order) for order in orders.values()} == {math.factorial(length)}
    assert len(orders) == 1200 // math.factorial(length)
    data = prepared("reverse", options=options, test=0.2)
    test = data.splits["test"]
    assert data.record["bag_of_words_ceiling"] == pytest.approx(1 / math.factorial(length))
    assert bag_of_words_ceiling(test.source_text, test.references) == pytest.approx(1 / math.factorial(length))
    sides = {part: {tuple(sorted(source.split())) for source in one.source_text} for part, one in data.splits.items()}
    assert not sides["train"] & sides["test"]


def test_sorting_needs_no_order_even_with_all_orders(prepared: Prepare) -> None:
    options = {"distinct": True, "all_orders": True, "shortest": 3, "longest": 3, "size": 600}
    assert prepared("sort", options=options).record["bag_of_words_ceiling"] == 1.0


def test_sums_that_are_equal_do_not_hold_a_split_together(prepared: Prepare) -> None:
    """Thousands of pairs of numbers share few sums: joined by them, no test could be drawn."""
    data = prepared("addition", options={"longest": 2, "size": 2000})
    assert data.record["counts"] == {"train": 1800, "valid": 100, "test": 100}
    shared = set(data.splits["train"].target_text) & set(data.splits["test"].target_text)
    assert shared


IMPOSSIBLE: list[tuple[str, str, dict[str, Any], str]] = [
    ("copy", "iid", {"shortest": 5, "longest": 4}, "copy: shortest is 5 and longest 4; a length lies between them"),
    (
        "reverse",
        "iid",
        {"alphabet": 2, "longest": 3, "size": 50},
        "reverse has only 14 pairs of 1 to 3 symbols, size asks for 50; lower size, or allow more lengths or words",
    ),
    (
        "sort",
        "length",
        {"alphabet": 2, "longest": 6, "size": 60},
        "sort has only 24 pairs of 1 to 6 symbols beside its test, size asks for 60; lower size, or "
        "allow more lengths or words",
    ),
    (
        "reverse",
        "length",
        {"distinct": True, "alphabet": 12},
        "reverse: 20 distinct symbols (2 · longest, of split length) need an alphabet of 20, got 12; "
        "raise alphabet or lower longest",
    ),
    (
        "copy",
        "iid",
        {"distinct": True, "alphabet": 8},
        "copy: 10 distinct symbols need an alphabet of 10, got 8; raise alphabet or lower longest",
    ),
    ("reverse", "iid", {"all_orders": True}, "reverse: all_orders needs distinct: true, or orders repeat"),
    (
        "reverse",
        "length",
        {"all_orders": True, "distinct": True, "longest": 3},
        "reverse: all_orders has no split length, whose 6 symbols have 6! orders; use split: iid",
    ),
    (
        "reverse",
        "iid",
        {"all_orders": True, "distinct": True, "shortest": 6, "longest": 6, "size": 6000},
        "reverse: size 6,000 holds 8 questions of 720 pairs each; raise size or lower longest",
    ),
    ("lookup", "length", {"keys": 8}, "lookup: a source of 10 pairs needs 10 keys, got 8; raise keys or lower longest"),
    ("lookup", "iid", {"queries": 2}, "lookup: 2 queries need 2 pairs, and the shortest source has 1; raise shortest"),
    (
        "addition",
        "iid",
        {"longest": 1},
        "addition has only 55 pairs of 1 to 1 digits, size asks for 6,000; lower size, or allow more lengths or words",
    ),
    (
        "addition",
        "iid",
        {"base": 2},
        "addition: base: unknown field 'base'; known: longest, reverse, seed, shortest, size, test_each",
    ),
]


@pytest.mark.parametrize(("name", "split", "options", "message"), IMPOSSIBLE)
def test_what_cannot_be_drawn_is_refused_in_one_line(
    name: str, split: str, options: dict[str, Any], message: str, read: Read
) -> None:
    with pytest.raises(HeadToHeadError) as refused:
        read(name, split, **options)
    assert str(refused.value) == message
