"""How steps are computed: one operation after the other, replayed as CUDA graphs, or compiled.

A small model's step is hundreds of operations, each of which the host must start; on a GPU that
takes longer than computing them. A CUDA graph starts them all at once. It repeats what it recorded
to the letter, with the numbers of that moment, so everything that differs between steps reaches it
through tensors that are written before: the rows of the batch, the learning rates, the key of the
dropout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode

PAYS = {"cuda-graphs": 20, "compile": 5000}
"""Planned steps of one shape from which a program pays.

Recording costs as much as some five steps; compiling ten seconds to a minute, for a third of a
small step on a CPU (``benchmarks/compiled.py``).
"""

AWAY = 0.05
"""Share of a step's change by which a replayed step may differ from the same step computed."""

PARTS = 8
"""Where shapes are recorded, live positions are counted in so many parts of a batch."""


class Shape(NamedTuple):
    """What steps that do the same on other numbers have in common.

    Rows of each member, padded times, and how many positions of a member are projected to words.
    """

    rows: int
    source_time: int
    target_time: int
    live: int


class Cut(NamedTuple):
    """A batch before it is cut out of the training part: rows ``[member, batch]`` and its shape."""

    rows: Tensor
    shape: Shape


class Update(Protocol):
    """Take one step on the device: gradients, update, sums; nothing that the host waits for."""

    def __call__(self, rows: Tensor, shape: Shape) -> None: ...


Groups = Mapping[str, list[Tensor]]
"""Everything that a step changes, by kind."""

Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Records the device's work of a call, without doing it, and returns what does it again."""


@dataclass(frozen=True)
class Choice:
    """Which program trains, and why.

    >>> Choice("eager", "on a CPU").words
    'eager (on a CPU)'
    """

    name: str
    why: str

    @property
    def words(self) -> str:
        """Both in words."""
        return f"{self.name} ({self.why})"


def choose(asked: str, device: str, planned: Iterable[int], obstacle: str = "") -> Choice:
    """Return the program that pays, where ``auto`` leaves it to us.

    Args:
        asked: ``train.program``.
        device: The kind of device.
        planned: Steps that are planned of each shape.
        obstacle: Why steps cannot be recorded, if they cannot.

    >>> choose("auto", "cuda", [400, 3]).words
    'cuda-graphs (1 of 2 shapes has at least 20 planned steps)'
    """
    if asked == "eager":
        return Choice("eager", "asked for")
    name = "cuda-graphs" if asked == "auto" else asked
    if name == "cuda-graphs" and device != "cuda":
        needs = "CUDA graphs need a CUDA device"
        return Choice("eager", f"on {device}" if asked == "auto" else needs)
    if obstacle:
        return Choice("eager", obstacle)
    least = PAYS[name]
    shapes = list(planned)
    often = sum(steps >= least for steps in shapes)
    if not often:
        return Choice("eager", f"no shape has {least} planned steps, so {name} does not pay")
    has = "has" if often == 1 else "have"
    return Choice(name, f"{often} of {len(shapes)} shapes {has} at least {least} planned steps")


def rounded(live: int, shape: tuple[int, int]) -> int:
    """Return ``live`` positions rounded up, so that batches of few shapes stay of few shapes.

    >>> rounded(70, (10, 10)), rounded(99, (10, 10)), rounded(1, (1, 3))
    (78, 100, 1)
    """
    most = shape[0] * shape[1]
    part = -(-most // PARTS)
    return min(most, -(-live // part) * part)


class Eager:
    """Every operation of every step started by itself."""

    def __init__(self, update: Update) -> None:
        self.update = update

    def __call__(self, cut: Cut) -> None:
        """Take a step."""
        self.update(cut.rows, cut.shape)


@dataclass
class Graph:
    """A recorded step; ``proven`` once it did in another step what computing it does."""

    rows: Tensor
    replay: Callable[[], None]
    proven: bool = False

    def run(self, rows: Tensor) -> None:
        """Take the recorded step on other rows."""
        self.rows.copy_(rows)
        self.replay()


class Graphs:
    """Steps recorded once a shape, and replayed.

    A shape is first computed, then recorded, then proven: one more step is computed and replayed
    from the same state, and both must agree. Where recording or proving fails, the rest of the
    training is computed, ``say`` is told why, and the state is that of the computed steps.

    Args:
        update: The step.
        state: Returns all that a step changes.
        planned: Steps that are planned of a shape, live positions aside.
        record: Records a call.
        say: Is told why steps are not replayed any more.
    """

    def __init__(
        self,
        update: Update,
        state: Callable[[], Groups],
        planned: Mapping[tuple[int, int, int], int],
        record: Record,
        say: Callable[[str], None],
    ) -> None:
        self.update, self.state = update, state
        self.planned, self.record, self.say = planned, record, say
        self.graphs: dict[Shape, Graph] = {}
        self.given_up = False
        self._seen: Counter[tuple[int, int, int]] = Counter()

    def __call__(self, cut: Cut) -> None:
        """Take a step."""
        rows, shape = cut
        graph = None if self.given_up else self.graphs.get(shape)
        if graph is not None:
            self._replay(graph, rows, shape)
            return
        self.update(rows, shape)
        kind = (shape.rows, shape.source_time, shape.target_time)
        self._seen[kind] += 1
        left = self.planned.get(kind, 0) - self._seen[kind]
        # Not at the first step: what is made in it once (moments, tables) must not be recorded.
        if not self.given_up and sum(self._seen.values()) > 1 and left >= PAYS["cuda-graphs"]:
            self._record(rows, shape)

    def _record(self, rows: Tensor, shape: Shape) -> None:
        """Record the step that was just computed: all that it looks up is known now."""
        own = rows.clone()
        try:
            replay = self.record(lambda: self.update(own, shape))
        except RuntimeError as error:
            self._give_up(f"recording failed: {first_line(error)}")
            return
        self.graphs[shape] = Graph(own, replay)

    def _replay(self, graph: Graph, rows: Tensor, shape: Shape) -> None:
        if graph.proven:
            graph.run(rows)
            return
        try:
            before, computed = _copied(self.state()), _copied(self.state())
        except torch.OutOfMemoryError:
            self._give_up("there is no memory to prove a record with")
            self.update(rows, shape)
            return
        self.update(rows, shape)
        _put(computed, self.state())
        _put(self.state(), before)
        try:
            graph.run(rows)
            fault = _difference(before, computed, self.state())
        except RuntimeError as error:
            fault = f"it failed: {first_line(error)}"
        if fault:
            _put(self.state(), computed)
            self._give_up(f"a replayed step is not the computed one: {fault}")
        graph.proven = True

    def _give_up(self, why: str) -> None:
        self.given_up = True
        self.graphs.clear()
        self.say(f"CUDA graphs were given up, every step is computed: {why}")


@dataclass(frozen=True)
class Recorded:
    """What does recorded work again; it reads memory by its address, so it keeps that memory."""

    again: Callable[[], None]
    read: Mapping[int, UntypedStorage]

    def __call__(self) -> None:
        """Do it again."""
        self.again()


def cuda_record(device: torch.device) -> Record:
    """Return what records on a GPU; all records share memory, as only one is replayed at a time."""
    pool = torch.cuda.graph_pool_handle()
    stream = torch.cuda.Stream(device)

    def record(work: Callable[[], None]) -> Callable[[], None]:
        graph, witness = torch.cuda.CUDAGraph(), Witness()
        with torch.cuda.graph(graph, pool=pool, stream=stream), witness:
            work()
        return Recorded(graph.replay, witness.read)

    return record


class Witness(TorchDispatchMode):
    """Keeps the memory that operations read and did not make, whoever else lets it go."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: dict[int, UntypedStorage] = {}
        self._made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for storage in _storages((args, kwargs or {})):
            if storage._cdata not in self._made:
                self.read[storage._cdata] = storage
        found = func(*args, **(kwargs or {}))
        self._made.update(
            storage._cdata for storage in _storages(found) if storage._cdata not in self.read
        )
        return found


def _storages(value: Any) -> Iterable[UntypedStorage]:
    if isinstance(value, Tensor):
        yield value.untyped_storage()
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _storages(one)
    elif isinstance(value, dict):
        yield from _storages(list(value.values()))


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of what it says.

    >>> first_line(RuntimeError("backend raised:\\nno C++ compiler\\nat line 3"))
    'RuntimeError: backend raised: no C++ compiler'
    """
    lines = str(error).strip().splitlines()
    said = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return ": ".join([type(error).__name__, " ".join(said)]) if said else type(error).__name__


def _copied(groups: Groups) -> Groups:
    return {kind: [one.detach().clone() for one in tensors] for kind, tensors in groups.items()}


@torch.no_grad()
def _put(groups: Groups, values: Groups) -> None:
    for kind, tensors in groups.items():
        torch._foreach_copy_([one.detach() for one in tensors], values[kind])


def _difference(before: Groups, computed: Groups, replayed: Groups) -> str:
    """Return what a replayed step changed otherwise, in words; nothing if it is the same step."""
    for kind, tensors in replayed.items():
        wrong = _norm(tensors, computed[kind])
        change = _norm(computed[kind], before[kind])
        if not wrong <= AWAY * change:
            return f"{kind} differ by {wrong:.3g}, where the step changed them by {change:.3g}"
    return ""


def _norm(a: list[Tensor], b: list[Tensor]) -> float:
    squares = [(x.detach().double() - y.double()).square().sum() for x, y in zip(a, b, strict=True)]
    return float(torch.stack(squares).sum().sqrt())
