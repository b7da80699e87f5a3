"""depo, brevo and mano: each task solved from its tokens alone, by definition, and compared with the labels."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest

from headtohead.plugins.dataset import Pair
from headtohead.plugins.registry import find_dataset
from headtohead_plugins.datasets.graphs import draw_order
from made import refused


def names_of(words: list[str]) -> Iterator[tuple[str, ...]]:
    """Divide words into names, which end at a word without a hyphen."""
    name: tuple[str, ...] = ()
    for word in words:
        name += (word,)
        if word[-1] != "-":
            yield name
            name = ()
    assert not name


def edges_of(words: list[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    listed = list(names_of(words))
    return list(zip(listed[::2], listed[1::2], strict=True))


def whole(pair: Pair) -> tuple[list[str], dict[int, str]]:
    """Return all words of a sequence with its last label, and the words that are labels by their index."""
    words = pair.source.split()
    labels = pair.target.split()
    assert list(pair.labelled) == sorted({*pair.labelled})
    assert pair.labelled[-1] == len(words) - 1
    words.append(labels[-1])
    return words, {index + 1: label for index, label in zip(pair.labelled, labels, strict=True)}


@pytest.mark.parametrize(
    "options",
    [
        {"size": 400},
        {
            "size": 200,
            "shortest": 4,
            "longest": 12,
            "hops": 30,
            "alphabet": 3,
            "name_length": [2, 4],
        },
        {"size": 100, "questions": 2, "alphabet": 12, "name_length": [1, 1]},
    ],
)
def test_depo_labels_are_the_nodes_after_k_edges(options, read):
    for pair in read("depo", **options).pairs:
        words, labels = whole(pair)
        assert {index: words[index] for index in labels} == labels
        starts = [index for index, word in enumerate(words) if word[0] == ">"]
        edges = edges_of(words[: starts[0]])
        following = dict(edges)
        assert len(following) == len(edges) == len({*following.values()})
        expected, asked = set(), []
        for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
            equals = words.index("=", start, end)
            (node,) = names_of(words[start + 1 : equals])
            asked.append(node)
            for _ in range(int(words[start][1:])):
                node = following[node]
            assert [node] == list(names_of(words[equals + 1 : end]))
            expected |= {*range(equals, end)}
        assert {*labels} == expected
        assert len({*asked}) == len(asked) == min(len(edges), options.get("questions", 10))


@pytest.mark.parametrize(
    "options",
    [
        {"size": 400},
        {"size": 200, "longest": 14, "alphabet": 4, "name_length": [2, 4]},
    ],
)
def test_brevo_labels_are_the_nodes_before_the_question_in_an_order_of_the_graph(options, read):
    for pair in read("brevo", **options).pairs:
        words, labels = whole(pair)
        question, equals = words.index("?"), words.index("=")
        edges = edges_of(words[:question])
        (query,) = names_of(words[question + 1 : equals])
        assert {index: words[index] for index in labels} == labels
        assert {*labels} == {*range(equals, len(words))}
        assert words[-1] == "."
        order = list(names_of(words[equals + 1 : -1]))
        needed = {query}
        for _ in edges:  # the longest path has as many edges as there are
            needed |= {source for source, end in edges if end in needed}
        assert {*order} == needed
        assert len(order) == len(needed)
        assert all(order.index(source) < order.index(end) for source, end in edges if end in needed)
        for end in (0, 1):
            assert max(Counter(edge[end] for edge in edges).values()) <= 4
        assert len({*edges}) == len(edges)


def test_every_order_of_a_graph_of_brevo_is_drawn():
    sources = {3: [0, 1], 4: [2], 5: [3, 4]}
    valid = {
        order
        for order in permutations(range(6))
        if all(order.index(a) < order.index(b) for b, ends in sources.items() for a in ends)
    }
    random = np.random.RandomState(1)
    assert {tuple(draw_order(random, sources, 5)) for _ in range(2000)} == valid
    assert {tuple(draw_order(random, sources, 3)) for _ in range(50)} == {(0, 1, 3), (1, 0, 3)}


def value_of(words: Iterator[str]) -> int:
    """Evaluate an expression in prefix notation by recursion."""
    word = next(words)
    if word.isdigit():
        return int(word)
    first, second = value_of(words), value_of(words)
    return {"+": first + second, "-": first - second, "*": first * second}[word]


def test_mano_labels_are_the_values_of_the_expressions(read):
    lengths, kinds = Counter(), Counter()
    for pair in read("mano", size=600, longest=6, modulus=11).pairs:
        first, *words, last = pair.source.split()
        expression = iter(words)
        assert pair.target == str(value_of(expression) % 11)
        assert next(expression, None) is None
        count = sum(word in "+-*" for word in words)
        assert (first, last) == (f"#{count}", f"={count}")
        assert len(words) == 2 * count + 1
        assert pair.labelled == (len(words) + 1,)
        lengths[count] += 1
        kinds.update(word for word in words if word in "+-*")
    assert lengths == dict.fromkeys(range(1, 7), 100)
    assert {*kinds} == {*"+-*"}


@pytest.mark.slow
def test_mano_draws_as_many_expressions_as_there_are():
    dataset = find_dataset("mano")
    task = dataset.task(dataset.Options(modulus=2), "iid")
    random = np.random.RandomState(1)
    for length, trees in ((1, 1), (2, 2), (3, 5)):
        assert task.capacity(length) == trees * 3**length * 2 ** (length + 1)
        keys = {task.draw(random, length).key for _ in range(40 * task.capacity(length))}
        assert len(keys) == task.capacity(length)


def test_depo_draws_as_many_examples_as_there_are():
    dataset = find_dataset("depo")
    options = dataset.Options(longest=4, alphabet=4, name_length=(1, 1), hops=2, questions=2)
    task = dataset.task(options, "iid")
    random = np.random.RandomState(1)
    assert task.capacity(3) == math.perm(4, 3) // 3 * 6 * 4
    keys = {task.draw(random, 3).key for _ in range(4000)}
    assert len(keys) == task.capacity(3)


def test_brevo_has_at_least_as_many_examples_as_it_states():
    dataset = find_dataset("brevo")
    task = dataset.task(dataset.Options(longest=4), "iid")
    random = np.random.RandomState(1)
    for length in (3, 4):
        keys = {task.draw(random, length).key for _ in range(3000)}
        assert len(keys) > task.capacity(length) == 24


@pytest.mark.parametrize("name", ["depo", "brevo", "mano"])
def test_parts_are_disjoint_and_the_largest_length_is_a_test_set(name, prepared):
    options = {"size": 300, "longest": 5, "test_lengths": [5, 5], "test_each": 40}
    if name == "brevo":
        options["alphabet"] = 12
    data = prepared(name, split="length", options=options)
    shortest = 1 if name == "mano" else 3

    def length_of(source: str) -> int:
        words = source.split()
        if name == "mano":
            return int(words[0][1:])
        if name == "depo":
            end = next(index for index, word in enumerate(words) if word[0] == ">")
            return len(edges_of(words[:end]))
        return 0

    def problem_of(source: str) -> object:
        words = source.replace("[", "").replace("]", "").split()
        if name == "mano":
            return tuple(words)
        if name == "depo":
            end = next(index for index, word in enumerate(words) if word[0] == ">")
            questions = [
                tuple(part.split(" =")[0].split()) for part in " ".join(words[end:]).split(">")[1:]
            ]
            return frozenset(edges_of(words[:end])), tuple(questions)
        question, equals = words.index("?"), words.index("=")
        return frozenset(edges_of(words[:question])), tuple(words[question:equals])

    problems = {
        part: [problem_of(text) for text in pairs.source_text]
        for part, pairs in data.splits.items()
    }
    for part, examples in problems.items():
        assert len({*examples}) == len(examples), part
    assert not {*problems["train"]} & ({*problems["test"]} | {*problems["valid"]})
    assert data.record["leak"] == 0
    assert len(problems["test"]) == 40
    if name != "brevo":
        lengths = {
            part: {length_of(text.replace("[", "").replace("]", "")) for text in pairs.source_text}
            for part, pairs in data.splits.items()
        }
        assert lengths["test"] == {5}
        assert lengths["train"] == {*range(shortest, 6)}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "depo",
            {"alphabet": 2, "name_length": [1, 2]},
            "depo: 8 nodes require as many names, but an alphabet of 2 and name_length [1, 2] have only 6",
        ),
        ("brevo", {"alphabet": 7}, "brevo: 8 nodes require as many names"),
        ("depo", {"name_length": [3, 2]}, "depo: name_length is [3, 2]; give the smaller number"),
        ("mano", {"longest": 1, "size": 2000}, "mano has only 1,587 pairs of 1 to 1 operations"),
    ],
)
def test_impossible_options_are_refused_in_one_line(name, options, message, read):
    assert message in refused(read, name, None, **options)
