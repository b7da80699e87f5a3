"""Execution backends: eager steps, and steps that are replayed as CUDA graphs.

The step of a small model is hundreds of operations, and the host launches each of them. On a GPU
the launches take longer than the operations. A CUDA graph launches all of them at once. It repeats
what was captured with the numbers of that moment, so everything that differs between steps reaches
it through tensors that are written before a replay: rows of the batch, learning rates, the key of
the dropout.

A capture executes nothing. Tensors that are allocated inside a capture hold no results, and a
capture that fails leaves such tensors wherever the step stored them. ``Graphs`` therefore captures
a step only after an eager step left no new tensor behind, and restores state and gradients after
every capture.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

PAYS = {"cuda-graphs": 20, "compile": 5000}
"""Planned steps of one shape from which a backend pays.

Capturing costs as much as some six steps; compiling ten seconds to a minute, for a third of a
small step on a CPU (``benchmarks/compiled.py``).
"""

SHARE = 0.05
"""Share of a step's change by which a replayed step may differ from the eager step."""

PARTS = 8
"""On a GPU, target tokens are counted in so many parts of a batch, which makes shapes fewer."""

ATTEMPTS = 3
"""Steps of a shape that may leave new tensors behind before ``Graphs`` falls back to eager."""


class BatchShape(NamedTuple):
    """What steps that launch the same operations have in common.

    Rows of each member, padded times, and how many positions of a member are projected to words.
    """

    rows: int
    source_time: int
    target_time: int
    num_target_tokens: int


class BatchSpec(NamedTuple):
    """A batch before it is cut out of the training part: rows ``[member, batch]`` and its shape."""

    rows: Tensor
    shape: BatchShape


class Owned(NamedTuple):
    """A tensor of the state, and the members along its first dimension; None if all share it."""

    tensor: Tensor
    members: tuple[int, ...] | None


State = Mapping[str, Sequence[Owned]]
"""Everything that a step changes, by kind."""

Values = Mapping[str, Sequence[Tensor]]
"""Copies of the tensors of a state."""


class Trainable(Protocol):
    """The training that a backend executes steps of."""

    @property
    def active_members(self) -> Sequence[int]:
        """Members that still train."""

    def update(self, rows: Tensor, shape: BatchShape, eager: bool = False) -> None:
        """Execute the device's part of a step; ``eager`` asks for no compiled code in it."""

    def state(self) -> State:
        """Return everything that ``update`` changes."""

    def clear_gradients(self) -> None:
        """Set all gradients to None."""


Capture = Callable[[Callable[[], None]], Callable[[], None]]
"""Captures the device's work of a call without executing it, and returns what replays it."""


@dataclass(frozen=True)
class BackendChoice:
    """The backend of a training, and why it was chosen.

    >>> Choice("eager", "on a CPU").words
    'eager (on a CPU)'
    """

    name: str
    why: str

    @property
    def words(self) -> str:
        """Both in words."""
        return f"{self.name} ({self.why})"


def not_tested(backend: str) -> str:
    """Return why a backend is not verified where no self-test has run."""
    return f"{backend} has not been verified on this machine; type h2h doctor"


def choose(
    asked: str, device: str, planned: Iterable[int], obstacle: str = "", unverified: Callable[[str], str] = not_tested
) -> BackendChoice:
    """Return the backend of a training.

    ``auto`` is eager on a CPU. On a GPU it is the fastest backend that pays and is verified.

    Args:
        asked: ``train.backend``.
        device: The kind of device.
        planned: Planned steps of each shape.
        obstacle: Why steps cannot be captured, if they cannot.
        unverified: Returns why a backend is not verified on this machine, or an empty text. It is
            called only for ``auto`` and only where the backend would pay.

    >>> choose("auto", "cuda", [400, 3], unverified=lambda name: "").words
    'cuda-graphs (1 of 2 shapes has at least 20 planned steps)'
    >>> choose("auto", "cuda", [400, 3]).words
    'eager (cuda-graphs has not been verified on this machine; type h2h doctor)'
    """
    if asked == "eager":
        return BackendChoice("eager", "asked for")
    name = "cuda-graphs" if asked == "auto" else asked
    if name == "cuda-graphs" and device != "cuda":
        needs = "CUDA graphs require a CUDA device"
        return BackendChoice("eager", f"on {device}" if asked == "auto" else needs)
    if obstacle:
        return BackendChoice("eager", obstacle)
    least = PAYS[name]
    shapes = list(planned)
    often = sum(steps >= least for steps in shapes)
    if not often:
        return BackendChoice("eager", f"no shape has {least} planned steps, so {name} does not pay")
    why = unverified(name) if asked == "auto" else ""
    if why:
        return BackendChoice("eager", why)
    has = "has" if often == 1 else "have"
    return BackendChoice(name, f"{often} of {len(shapes)} shapes {has} at least {least} planned steps")


def rounded(live: int, shape: tuple[int, int]) -> int:
    """Return ``live`` positions rounded up, so that batches of few shapes stay of few shapes.

    >>> rounded(70, (10, 10)), rounded(99, (10, 10)), rounded(1, (1, 3))
    (78, 100, 1)
    """
    most = shape[0] * shape[1]
    part = -(-most // PARTS)
    return min(most, -(-live // part) * part)


class ReplayFailed(RuntimeError):
    """The replay of a verified graph raised, so the state may be that of half a step."""


class Eager:
    """Launches every operation of every step by itself."""

    def __call__(self, training: Trainable, cut: BatchSpec) -> None:
        """Execute a step."""
        training.update(cut.rows, cut.shape)

    def is_steady(self, shape: BatchShape) -> bool:
        """Return True: a step costs the same whenever it is executed."""
        return True


@dataclass
class Graph:
    """A captured step; ``verified`` once it changed the state as an eager step did.

    A replay reads memory by its address, so ``reads`` keeps that memory allocated.
    """

    rows: Tensor
    replay: Callable[[], None]
    decoder_input_ids: Mapping[int, UntypedStorage]
    verified: bool = False

    def run(self, rows: Tensor) -> None:
        """Replay the step on other rows."""
        self.rows.copy_(rows)
        self.replay()


class Graphs:
    """Captures one step of each shape and replays it.

    The first step of a shape is eager. It is then executed once more and observed, and captured
    where it left no new tensor behind. The next step is executed both ways from the same state,
    and the graph is verified if both agree in every live member. The result of the eager step is
    kept. Where a capture or the verification fails, state and gradients are those of the last
    eager step, the rest of the training is eager, and the reason is logged.

    Args:
        planned: Planned steps of a shape, without its live positions.
        capture: Captures a call.
        log: Receives the reason of a fallback.
    """

    def __init__(
        self, planned: Mapping[tuple[int, int, int], int], capture: Capture, log: Callable[[str], None]
    ) -> None:
        self.planned, self.capture, self.log = planned, capture, log
        self.graphs: dict[BatchShape, Graph] = {}
        self.fell_back = False
        self._steps: Counter[tuple[int, int, int]] = Counter()
        self._attempts: Counter[BatchShape] = Counter()

    def __call__(self, training: Trainable, cut: BatchSpec) -> None:
        """Execute a step.

        Raises:
            ReplayFailed: If a replay of a verified graph raises. The state is then undefined.
        """
        graph = self.graphs.get(cut.shape)
        if graph is None:
            training.update(cut.rows, cut.shape)
            self._steps[cut.shape[:3]] += 1
            if self._pays(cut.shape):
                self._capture(training, cut)
        elif graph.verified:
            self._replay(graph, cut)
        else:
            self._verify(graph, training, cut)

    def is_steady(self, shape: BatchShape) -> bool:
        """Return whether steps of a shape are replayed, or eager for good."""
        graph = self.graphs.get(shape)
        return not self._pays(shape) if graph is None else graph.verified

    def _pays(self, shape: BatchShape) -> bool:
        kind = shape[:3]
        left = self.planned.get(kind, 0) - self._steps[kind]
        return not self.fell_back and left >= PAYS["cuda-graphs"]

    def _capture(self, training: Trainable, cut: BatchSpec) -> None:
        """Capture the step that was just executed."""
        shape, saved, fault = cut.shape, None, ""
        try:
            rows, saved = cut.rows.clone(), _copied(training.state())
            with Witness() as witness:
                training.update(rows, shape, eager=True)
            _put(training.state(), saved)
            kept = witness.kept()
            if kept:
                self._attempts[shape] += 1
                if self._attempts[shape] == ATTEMPTS:
                    fault = f"steps keep tensors that they allocate ({kept} in the last one)"
            else:
                replay = self.capture(lambda: training.update(rows, shape))
                self.graphs[shape] = Graph(rows, replay, witness.decoder_input_ids)
        except Exception as error:  # whatever a capture raises, eager steps raise it if it is real
            fault = f"the capture failed: {first_line(error)}"
        finally:
            training.clear_gradients()
            if saved is not None:
                _put(training.state(), saved)
        if fault:
            self._fall_back(fault)

    def _verify(self, graph: Graph, training: Trainable, cut: BatchSpec) -> None:
        """Execute a step eagerly and as a graph, and keep the eager result."""
        before, eager, fault = self._both(training, cut)
        if before is None or eager is None:
            training.update(cut.rows, cut.shape)
            self._fall_back(fault)
            return
        try:
            _put(training.state(), before)
            graph.run(cut.rows)
            found = compare(before, eager, training.state(), training.active_members)
            fault = f"a replayed step differs from the eager step: {found.fault}"
            fault = fault if found.fault else ""
            # Where every live member's loss is infinite or NaN, nothing was compared.
            graph.verified = found.compared and not fault
        except Exception as error:
            fault = f"the first replay failed: {first_line(error)}"
        finally:
            training.clear_gradients()
            _put(training.state(), eager)
        if fault:
            self._fall_back(fault)

    @staticmethod
    def _both(training: Trainable, cut: BatchSpec) -> tuple[Values | None, Values | None, str]:
        """Return copies of the state before and after an eager step.

        Where they cannot be made, the state is the one before, and the text says why.
        """
        before: Values | None = None
        try:
            before = _copied(training.state())
            training.update(cut.rows, cut.shape)
            return before, _copied(training.state()), ""
        except RuntimeError as error:  # torch.OutOfMemoryError is one
            training.clear_gradients()
            if before is not None:
                _put(training.state(), before)
            return None, None, f"a captured step could not be verified: {first_line(error)}"

    def _replay(self, graph: Graph, cut: BatchSpec) -> None:
        try:
            graph.run(cut.rows)
        except Exception as error:
            self._fall_back(f"a replay failed: {first_line(error)}")
            raise ReplayFailed(str(error)) from error

    def _fall_back(self, why: str) -> None:
        self.fell_back = True
        self.graphs.clear()
        self.log(f"cuda-graphs falls back to eager: {why}")


def cuda_capture(device: torch.device) -> Capture:
    """Return what captures on a GPU; all graphs share memory, as only one runs at a time."""
    pool = torch.cuda.graph_pool_handle()
    stream = torch.cuda.Stream(device)

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        # torch.cuda.graph leaves its own stream current where ending the capture raises.
        with torch.cuda.stream(torch.cuda.current_stream(device)), torch.cuda.graph(graph, pool=pool, stream=stream):
            work()
        return graph.replay

    return capture


class Witness(TorchDispatchMode):
    """Observes which memory the operations of a step read, and which new memory outlives it.

    It observes an eager step and not the capture: Dynamo skips a compiled function that is called
    while a ``TorchDispatchMode`` is active, and every later call of it too.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.decoder_input_ids: dict[int, UntypedStorage] = {}
        """Memory that operations read and did not allocate; it is kept allocated."""
        self._made: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Execute one operation and note its memory."""
        for storage in _storages((args, kwargs or {})):
            if storage._cdata not in self._made:
                self.decoder_input_ids[storage._cdata] = storage
        found = func(*args, **(kwargs or {}))
        for storage in _storages(found):
            if storage._cdata not in self.decoder_input_ids and storage._cdata not in self._made:
                self._made[storage._cdata] = StorageWeakRef(storage)
        return found

    def kept(self) -> int:
        """Return how many tensors that the step allocated are still in use."""
        return sum(not one.expired() for one in self._made.values())


def _storages(value: Any) -> Iterable[UntypedStorage]:
    if isinstance(value, Tensor):
        yield value.untyped_storage()
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _storages(one)
    elif isinstance(value, dict):
        yield from _storages(list(value.values()))


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its message.

    >>> first_line(RuntimeError("backend raised:\\nno C++ compiler\\nat line 3"))
    'RuntimeError: backend raised: no C++ compiler'
    """
    lines = str(error).strip().splitlines()
    said = lines[:2] if lines and lines[0].endswith(":") else lines[:1]
    return ": ".join([type(error).__name__, " ".join(said)]) if said else type(error).__name__


@dataclass(frozen=True)
class StepComparison:
    """How two steps differ; ``fault`` is empty where they agree.

    ``compared`` is False where no live member has finite values, which agree with any other.
    """

    fault: str
    compared: bool


def compare(
    before: Values | None, eager: Values, other: State, live: Sequence[int], share: float = SHARE
) -> StepComparison:
    """Compare the changes of a step with those of the eager step, for each live member.

    Members whose eager values are not finite agree if their other values are not finite either.

    Args:
        before: The state before both steps; None stands for zeros.
        eager: The state after the eager step.
        other: The state after the other step.
        live: Members to compare; what all members share is compared too.
        share: Share of the norm of a change by which the other step may differ from it.
    """
    members = 1 + max((max(one.members) for kind in other.values() for one in kind if one.members), default=-1)
    norms = [
        _norms(parts, None if before is None else before[kind], eager[kind], members) for kind, parts in other.items()
    ]
    finite = set(live)
    for kind, (wrongs, changes, moves) in zip(other, torch.stack(norms).tolist(), strict=True):
        for slot in (*live, members):
            wrong, change, move = wrongs[slot], changes[slot], moves[slot]
            if not math.isfinite(change):
                finite.discard(slot)
                if not math.isfinite(move):
                    continue
            if not wrong <= share * change:
                whose = "" if slot == members else f" of member {slot}"
                return StepComparison(
                    f"{kind}{whose} differ by {wrong:.3g}, where the eager step changed them by {change:.3g}", True
                )
    return StepComparison("", bool(finite))


def _norms(other: Sequence[Owned], before: Sequence[Tensor] | None, eager: Sequence[Tensor], members: int) -> Tensor:
    """Return norms of three differences by member, ``[3, member + 1]``; the last is what is shared.

    The differences are other − eager, eager − before and other − before.
    """
    squares = torch.zeros(3, members + 1, dtype=torch.float64, device=eager[0].device)
    for place, (tensor, owners) in enumerate(other):
        new, old = tensor.detach().double(), eager[place].double()
        start = 0.0 if before is None else before[place].double()
        shared = owners is None
        slots = torch.tensor([members] if owners is None else owners, device=squares.device)
        for row, gap in zip(squares, (new - old, old - start, new - start), strict=True):
            row.index_add_(0, slots, gap.square().reshape(1 if shared else len(gap), -1).sum(1))
    return squares.sqrt()


def _copied(state: State) -> Values:
    return {kind: [one.tensor.detach().clone() for one in parts] for kind, parts in state.items()}


@torch.no_grad()
def _put(state: State, values: Values) -> None:
    for kind, parts in state.items():
        torch._foreach_copy_([one.tensor.detach() for one in parts], list(values[kind]))
