"""Tasks with sources and computed targets: targets computed independently, disjoint parts."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from headtohead.data import PreparedData
from headtohead.plugins.dataset import Corpus
from headtohead.plugins.registry import find_dataset
from made import case_table, refused

Prepare = Callable[..., PreparedData]
Read = Callable[..., Corpus]
Key = Callable[[str], object]


def read_backwards(source: str) -> str:
    words = source.split()
    return " ".join(words[index] for index in range(len(words) - 1, -1, -1))


def counted_out(source: str) -> str:
    """Counting sort, ascending."""
    counts = Counter(int(word) for word in source.split())
    return " ".join(
        " ".join([str(number)] * counts[number]) for number in range(1000) if counts[number]
    )


def looked_up(source: str) -> str:
    entries, queries = source.split(" ? ")
    return " ".join(entries.split(f"{query} ", 1)[1].split()[0] for query in queries.split())


def carried(source: str) -> str:
    """Column addition with carry."""
    first, second = ([int(digit) for digit in number.split()] for number in source.split(" + "))
    assert len(first) == len(second)
    digits, carry = [], 0
    for a, b in zip(reversed(first), reversed(second), strict=True):
        carry, digit = divmod(a + b + carry, 10)
        digits.insert(0, digit)
    return " ".join(map(str, [1, *digits] if carry else digits))


def flipped(source: str) -> str:
    """A finite automaton with two states."""
    state = False
    for digit in source.split():
        if digit == "1":
            state = not state
    return "1" if state else "0"


def evaluated(source: str) -> str:
    """Python's own evaluation, in which products precede sums."""
    return str(eval(source) % 5)


def moved(source: str) -> str:
    """Cancels every pop with the symbol before it, from a list of symbols and pops."""
    before, _, after = source.partition("then")
    symbols = before.split() + after.replace("push", "").split()
    for place, symbol in enumerate(symbols):
        if symbol == "pop":
            last = next((index for index in range(place - 1, -1, -1) if symbols[index]), None)
            symbols[place] = ""
            if last is not None:
                symbols[last] = ""
    return " ".join(filter(None, reversed(symbols))) or "empty"


def length_of(name: str, source: str) -> int:
    tokens = len(source.split())
    if name == "stack-manipulation":
        return tokens - 1 - source.count("push")
    if name == "modular-arithmetic":
        return sum(map(str.isdigit, source))
    if name == "lookup":
        return (len(source.split(" ? ")[0].split())) // 2
    return (tokens - 1) // 2 if name == "addition" else tokens


TRUTH: dict[str, Callable[[str], str]] = {
    "copy": str,
    "reverse": read_backwards,
    "sort": counted_out,
    "lookup": looked_up,
    "addition": carried,
    "parity": flipped,
    "modular-arithmetic": evaluated,
    "stack-manipulation": moved,
}
SIZE = 600
SHORTEST = {"modular-arithmetic": 2, "stack-manipulation": 2}
SAME: dict[str, Key] = {
    "sort": lambda source: tuple(sorted(source.split())),
    "lookup": lambda source: (
        frozenset(zip(*[iter(source.split(" ? ")[0].split())] * 2, strict=True)),
        source.split(" ? ")[1],
    ),
    "addition": lambda source: frozenset(source.split(" + ")),
}
"""Key that is equal for sources of the same example; of the other tasks, the source."""


@case_table("split", ["iid", "length"], default=1)
@pytest.mark.parametrize("name", TRUTH)
def test_every_target_is_correct(name: str, split: str, read: Read) -> None:
    pairs = read(name, split, size=SIZE).pairs
    assert len(pairs) >= SIZE
    for pair in pairs:
        assert pair.target == TRUTH[name](pair.source), pair.source


def test_expressions_with_brackets_have_their_value_and_one_pair_for_each_operation(
    read: Read,
) -> None:
    for pair in read("modular-arithmetic", brackets=True, size=SIZE).pairs:
        assert pair.target == evaluated(pair.source)
        operations = sum(pair.source.count(kind) for kind in "+-*")
        assert pair.source.count("(") == pair.source.count(")") == operations


def test_a_reversed_sum_is_written_from_its_units_on(read: Read) -> None:
    for pair in read("addition", digit_order="reversed", size=SIZE).pairs:
        assert pair.target[::-1] == carried(pair.source)


def test_every_word_of_a_task_has_an_id_although_training_lacks_some(prepared: Prepare) -> None:
    data = prepared("lookup", options={"keys": 1000, "size": 200})
    assert data.record["unk_rate"]["test"] == {"source": 0, "target": 0}


def test_several_queries_are_answered_in_their_order(read: Read) -> None:
    pairs = read("lookup", queries=3, shortest=3, size=SIZE).pairs
    assert {len(pair.target.split()) for pair in pairs} == {3}
    for pair in pairs:
        assert pair.target == looked_up(pair.source)
        queries = pair.source.split(" ? ")[1].split()
        assert len(set(queries)) == 3


@pytest.mark.parametrize(
    "name", [*TRUTH, "mqar", "induction", "selective-copy", "depo", "brevo", "mano"]
)
def test_examples_are_distinct_and_parts_disjoint(name: str, prepared: Prepare) -> None:
    key = SAME.get(name, str)
    for split in ("iid", "length"):
        data = prepared(name, split=split, options={"size": SIZE})
        keys = {
            part: [key(source) for source in pairs.source_text]
            for part, pairs in data.splits.items()
        }
        for part, examples in keys.items():
            assert len(set(examples)) == len(examples), (split, part)
        assert not set(keys["train"]) & (set(keys["test"]) | set(keys["valid"]))
        assert not set(keys["valid"]) & set(keys["test"])
        assert data.record["leak"] == 0.0
        assert not data.record["leaky"]


@case_table("name", TRUTH, default=2)
def test_split_length_trains_up_to_l_and_tests_up_to_twice_l(name: str, prepared: Prepare) -> None:
    longest = find_dataset(name).Options().longest  # type: ignore[attr-defined]
    data = prepared(name, split="length", options={"test_each": 40, "size": SIZE})
    splits = data.splits
    lengths = {
        part: Counter(length_of(name, source) for source in pairs.source_text)
        for part, pairs in splits.items()
    }
    assert set(lengths["train"]) == set(range(SHORTEST.get(name, 1), longest + 1))
    tokens = max(len(source.split()) for source in splits["train"].source_text)
    assert data.record["longest_in_train"] == tokens
    assert max(lengths["valid"]) <= longest
    test = lengths["test"]
    assert max(test) == 2 * longest
    assert all(test[length] == 40 for length in range(longest, 2 * longest + 1))
    assert sum(test[length] for length in range(1, longest + 1)) > 40
    assert all(test[length] <= 40 for length in test)


FROZEN = {
    "copy": "2b68ae09d57dec5e",
    "reverse": "989ffe684e186519",
    "sort": "2f7f85daaa36c0cc",
    "lookup": "5b158f00f3bae4b0",
    "addition": "e78a71a54cbe5782",
}
"""Beginnings of data hashes: another hash would be other data with the same options."""


@case_table("name", FROZEN, default=2)
def test_generated_corpora_do_not_change_between_versions(name: str, read: Read) -> None:
    assert read(name, "length").data_hash[:16] == FROZEN[name]
    assert read(name, size=50, seed=1).data_hash != read(name, size=50, seed=2).data_hash


@pytest.mark.parametrize("length", [3, 4])
def test_with_all_orders_the_bag_of_words_bound_is_one_in_n_factorial(
    length: int, prepared: Prepare, read: Read
) -> None:
    options: dict[str, Any] = {"distinct": True, "all_orders": True, "alphabet": 12, "size": 1200}
    options |= {"shortest": length, "longest": length}
    orders: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for pair in read("reverse", **options).pairs:
        orders[tuple(sorted(pair.source.split()))].add(pair.source)
    assert {len(sources) for sources in orders.values()} == {math.factorial(length)}
    assert len(orders) == 1200 // math.factorial(length)
    data = prepared("reverse", options=options, test=0.2)
    assert data.record["bag_of_words_upper_bound"] == pytest.approx(1 / math.factorial(length))


IMPOSSIBLE: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "copy",
        "iid",
        {"shortest": 5, "longest": 4},
        "copy: shortest is 5 and longest 4; lower shortest",
    ),
    (
        "reverse",
        "iid",
        {"alphabet": 2, "longest": 3, "size": 50},
        "only 14 pairs of 1 to 3 symbols, but size is 50",
    ),
    (
        "reverse",
        "length",
        {"distinct": True, "alphabet": 12},
        "20 distinct symbols require an alphabet of 20, got 12",
    ),
    (
        "addition",
        "iid",
        {"base": 2},
        "addition: unknown field 'base'; known: digit_order, longest, seed",
    ),
    (
        "mqar",
        "iid",
        {"levels": ["63x4"]},
        "mqar: level 63x4 requires an even number of at least 16 tokens",
    ),
    (
        "mqar",
        "iid",
        {"levels": ["64x16"], "alphabet": 30},
        "requires an alphabet of at least 32, got 30",
    ),
    ("mqar", "iid", {"levels": ["4 pairs"]}, "levels"),
    (
        "copy",
        "length",
        {"test_lengths": [40, 1]},
        "test_lengths has the longest test example first",
    ),
    (
        "selective-copy",
        "iid",
        {"shortest": 4},
        "8 data tokens require a length of 8, but the shortest is 4",
    ),
]


@pytest.mark.parametrize(("name", "split", "options", "message"), IMPOSSIBLE)
def test_impossible_options_are_refused_in_one_line(
    name: str, split: str, options: dict[str, Any], message: str, read: Read
) -> None:
    assert message in refused(read, name, split, **options)


def test_a_task_of_another_package_is_generated_again_because_it_may_read_files(tmp_path):
    own = type("Own", (find_dataset("copy"),), {"__module__": "mine"})
    keys = [
        dataset.cache_key(own.Options(), "iid", tmp_path) for dataset in (own, find_dataset("copy"))
    ]
    assert [key is None for key in keys] == [True, False]
