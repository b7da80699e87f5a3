"""depo and brevo: questions about a directed graph whose edges are listed in random order.

- depo: the graph is a cycle of n nodes. A question is a number k and a node; the labels are the node that follows it
  after k edges.
- brevo: the graph has no cycle. The question is a node; the labels are all nodes from which it can be reached, then the
  node itself, each after the nodes from which its edges come. Several orders are correct, and one of them is drawn: the
  loss has a minimum above 0, and exact match does not count correct answers.

The name of a node has several tokens. A hyphen marks all but the last of them, as in ``3- 7``. Labels begin at the last
token of each question: the sign ``=`` is a label too, and in brevo the sign ``.`` that ends the answer.

Paper: Z. Allen-Zhu. "Physics of Language Models: Part 4.1, Architecture Design and the Magic of Canon Layers".
NeurIPS 2025, arXiv:2512.17351, section 2, tasks Depo (reasoning depth) and Brevo (reasoning breadth); its code:
github.com/zhuzeyuan/PhysicsLM4, data-synthetic-pretrain. Depo1 has ``longest: 375, hops: 8``, and Depo2 ``longest: 125,
hops: 16, alphabet: 3, name_length: [5, 7]``. Brevo1 has ``longest: 110``, and Brevo2 ``longest: 50, alphabet: 4,
name_length: [2, 4]``.
Departs from the paper: lengths have equally many examples (the code draws n with probabilities proportional to
1 / (n + √N)), examples are distinct, and a test of depo has all numbers of edges up to ``hops`` (the paper has powers
of 2, and ``hops``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from headtohead.data import Example, LabelledDataset, LengthOptions, Task
from headtohead.plugin import Dataset, HeadToHeadError, hookimpl
from headtohead.plugin import Options as BaseOptions

CITATION = "Allen-Zhu 2025, Physics of Language Models: Part 4.1, section 2"
MAX_EDGES = 4
"""Largest number of edges that begin or end at a node of brevo."""

Name = tuple[str, ...]
NameLength = Annotated[int, Field(ge=1, le=20)]
Random = np.random.RandomState


class GraphOptions(LengthOptions):
    """The length is the number of nodes."""

    shortest: int = Field(3, ge=3, le=500, description="nodes of the smallest graph")


class DepoOptions(GraphOptions):
    """Nodes, names and questions; a sequence of n nodes has n edges and at most ``questions`` questions."""

    longest: int = Field(8, ge=3, le=500, description="nodes of the largest graph, N")
    hops: int = Field(4, ge=1, le=500, description="largest number of edges of a question, K")
    questions: int = Field(
        10, ge=1, le=500, description="questions about different nodes; at most one for each node"
    )
    alphabet: int = Field(50, ge=1, le=10_000, description="different tokens at a place of a name")
    name_length: tuple[NameLength, NameLength] = Field(
        (1, 2), description="fewest and most tokens of a name"
    )


class BrevoOptions(GraphOptions):
    """Nodes and names."""

    longest: int = Field(8, ge=3, le=500, description="nodes of the largest graph, N")
    alphabet: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="different tokens at a place of a name; default: nodes of the largest graph",
    )
    name_length: tuple[NameLength, NameLength] = Field(
        (1, 1), description="fewest and most tokens of a name"
    )


class Depo(LabelledDataset):
    """Generated cycles with questions for the node after k edges; the labels are the nodes' names."""

    phrase = "following a cycle"
    Options: ClassVar[type[BaseOptions]] = DepoOptions
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        **LabelledDataset.defaults,
        "data": {"source_boundaries": "none", "target_boundaries": "sos-eos"},
    }

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate cycles; the same cycle with the same questions, edges in another order, is the same example."""
        alphabet = options.alphabet
        _require_names(cls.entry_name, options, alphabet, split)

        def draw(random: Random, length: int) -> Example:
            names = draw_names(random, length, alphabet, options.name_length)
            order = random.permutation(length).tolist()
            asked = random.permutation(length)[: options.questions].tolist()
            hops = random.randint(1, options.hops + 1, size=len(asked)).tolist()
            return depo_example(names, order, list(zip(asked, hops, strict=True)))

        def capacity(length: int) -> int:
            questions = min(length, options.questions)
            cycles = math.perm(_num_names(options, alphabet), length) // length
            return int(cycles * math.perm(length, questions) * options.hops**questions)

        return Task(
            languages=("a cycle and questions", "the nodes after k edges"),
            citation=CITATION,
            draw=draw,
            capacity=capacity,
            unit="nodes",
        )


class Brevo(LabelledDataset):
    """Generated graphs without cycles; the labels are the nodes before a node, in one of the possible orders."""

    phrase = "sorting a graph"
    Options: ClassVar[type[BaseOptions]] = BrevoOptions
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = Depo.defaults

    @classmethod
    def task(cls, options: Any, split: str) -> Task:
        """Generate graphs; the same edges in any order with the same question are the same example."""
        alphabet = options.alphabet or options.longest_of(split)
        _require_names(cls.entry_name, options, alphabet, split)

        def draw(random: Random, length: int) -> Example:
            names = draw_names(random, length, alphabet, options.name_length)
            sources = draw_graph(random, length)
            query = length - 1
            edges = [(source, node) for node, ends in sources.items() for source in ends]
            random.shuffle(edges)
            return brevo_example(names, edges, query, draw_order(random, sources, query))

        def capacity(length: int) -> int:
            # A lower bound: every sequence of nodes is a chain, and there are more graphs.
            return math.perm(_num_names(options, alphabet), length)

        return Task(
            languages=("a graph and a node", "the nodes before it, in order"),
            citation=CITATION,
            draw=draw,
            capacity=capacity,
            unit="nodes",
        )


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    return {"depo": Depo, "brevo": Brevo}


def _num_names(options: Any, alphabet: int) -> int:
    fewest, most = options.name_length
    return sum(alphabet**length for length in range(fewest, most + 1))


def _require_names(dataset: str, options: Any, alphabet: int, split: str) -> None:
    """Refuse options with fewer names than nodes; a `HeadToHeadError`."""
    fewest, most = options.name_length
    if fewest > most:
        raise HeadToHeadError(
            f"{dataset}: name_length is [{fewest}, {most}]; give the smaller number first"
        )
    nodes = options.longest_of(split)
    if _num_names(options, alphabet) < nodes:
        raise HeadToHeadError(
            f"{dataset}: {nodes} nodes require as many names, but an alphabet of {alphabet} and name_length "
            f"[{fewest}, {most}] have only {_num_names(options, alphabet)}; raise alphabet or name_length"
        )


def draw_names(
    random: Random, count: int, alphabet: int, name_length: tuple[int, int]
) -> list[Name]:
    """Return different names of uniform lengths and tokens."""
    fewest, most = name_length
    names: dict[Name, None] = {}
    while len(names) < count:
        missing = count - len(names)
        lengths = random.randint(fewest, most + 1, size=missing).tolist()
        numbers = random.randint(1, alphabet + 1, size=(missing, most)).tolist()
        for length, row in zip(lengths, numbers, strict=True):
            *inner, last = row[:length]
            name = (*(f"{number}-" for number in inner), str(last))
            names[name] = None
    return list(names)


def depo_example(
    names: Sequence[Name], order: Sequence[int], questions: Sequence[tuple[int, int]]
) -> Example:
    """Return an example of depo.

    Args:
        names: The names of the nodes along the cycle.
        order: The nodes at which the listed edges begin.
        questions: The node of each question and its number of edges.
    """
    count = len(names)
    sequence = _Sequence()
    edges = [names[node] + names[(node + 1) % count] for node in order]
    for edge in edges:
        sequence.add(*edge)
    for node, hops in questions:
        sequence.add(f">{hops}", *names[node])
        sequence.add_answer("=", *names[(node + hops) % count])
    asked = [f">{hops} {' '.join(names[node])}" for node, hops in questions]
    return sequence.example(edges, " ".join(asked))


def brevo_example(
    names: Sequence[Name], edges: Sequence[Sequence[int]], query: int, answer: Sequence[int]
) -> Example:
    """Return an example of brevo.

    Args:
        names: The names of all nodes.
        edges: Both nodes of each edge, in the order of the sequence.
        query: The node of the question.
        answer: The nodes of the answer.
    """
    sequence = _Sequence()
    listed = [names[source] + names[end] for source, end in edges]
    for edge in listed:
        sequence.add(*edge)
    sequence.add("?", *names[query])
    sequence.add_answer("=")
    for node in answer:
        sequence.add_answer(*names[node])
    sequence.add_answer(".")
    return sequence.example(listed, f"? {' '.join(names[query])}")


def draw_graph(random: Random, count: int) -> dict[int, list[int]]:
    """Return the nodes from which each node's edges come, for the nodes at which edges end.

    Up to a quarter of the nodes have none. Every other node has up to four, all of which precede it. At most four edges
    begin at a node.
    """
    begun = np.zeros(count, dtype=int)
    leaves = int(random.randint(1, (count - 1) // MAX_EDGES + 2))
    sources: dict[int, list[int]] = {}
    for node in range(leaves, count):
        possible = np.flatnonzero(begun[:node] < MAX_EDGES)
        number = int(random.randint(1, min(len(possible), MAX_EDGES) + 1))
        chosen = random.permutation(possible)[:number]
        begun[chosen] += 1
        sources[node] = chosen.tolist()
    return sources


def draw_order(random: Random, sources: Mapping[int, Sequence[int]], query: int) -> list[int]:
    """Return a random order of a node and all nodes from which it can be reached, each after its sources.

    It is drawn from the end: of all nodes whose successors are in the order, one is equally likely to be next.
    """
    reached = {query}
    waiting = [query]
    while waiting:
        for source in sources.get(waiting.pop(), ()):
            if source not in reached:
                reached.add(source)
                waiting.append(source)
    successors = dict.fromkeys(reached, 0)
    for node in reached:
        for source in sources.get(node, ()):
            successors[source] += 1
    ready = [query]
    backwards = []
    while ready:
        node = ready.pop(int(random.randint(len(ready))))
        backwards.append(node)
        for source in sources.get(node, ()):
            successors[source] -= 1
            if successors[source] == 0:
                ready.append(source)
    return backwards[::-1]


class _Sequence:
    """The tokens of a sequence, and which of them the model predicts."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.predicted: list[int] = []

    def add(self, *tokens: str) -> None:
        """Append tokens without labels."""
        self.tokens += tokens

    def add_answer(self, *tokens: str) -> None:
        """Append tokens that the model predicts."""
        self.predicted += range(len(self.tokens), len(self.tokens) + len(tokens))
        self.tokens += tokens

    def example(self, edges: Sequence[Name], question: str) -> Example:
        """Return the example; the last token is only a label, as no token follows it."""
        source = " ".join(self.tokens[:-1])
        target = " ".join(self.tokens[index] for index in self.predicted)
        listed = " ".join(sorted(" ".join(edge) for edge in edges))
        labelled = tuple(index - 1 for index in self.predicted)
        return Example(f"{listed} {question}", ((source, target),), labelled)
