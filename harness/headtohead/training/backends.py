"""Execution backends: eager steps, and steps that are replayed as CUDA graphs.

A step of a small model has hundreds of operations, each launched by the host. On a GPU the launches
take longer than the operations. A CUDA graph launches all of them at once. It repeats the captured
operations on the same memory, so inputs that differ between steps are written to fixed tensors
before a replay: rows of the batch, learning rates, the key of the dropout.

A capture executes nothing. Tensors that are allocated inside a capture hold no results. ``Graphs`` therefore captures a
step only after an eager step left no new tensor behind, and clears the gradients after every capture.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, UntypedStorage
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead.errors import first_line
from headtohead.training.cuda import Capture

MIN_PLANNED_STEPS = 20
"""Planned steps of a shape from which CUDA graphs are faster in total; capturing takes as long as about six steps."""

MAX_REPLAY_DIFFERENCE = 0.05
"""Share of a step's change by which a replayed step may differ from the eager step."""

COMPARED_AT_ONCE = 2**22
"""Numbers of a tensor that are compared at a time, in float64, so that a comparison needs little memory."""

ATTEMPTS = 3
"""Steps of a shape that may leave new tensors behind before ``Graphs`` falls back to eager."""


class BatchShape(NamedTuple):
    """Rows of each member, padded lengths and computed logits of a batch; equal shapes launch the same operations."""

    rows: int
    source_time: int
    target_time: int
    num_target_tokens: int


class BatchSpec(NamedTuple):
    """A batch as rows ``[member, batch]`` of the training part, and its shape."""

    rows: Tensor
    shape: BatchShape


class Owned(NamedTuple):
    """A tensor of the state, and the members along its first dimension; None if all share it."""

    tensor: Tensor
    members: tuple[int, ...] | None


State = Mapping[str, Sequence[Owned]]
"""All tensors that a step changes, by kind."""

Values = Mapping[str, Sequence[Tensor]]
"""Copies of the tensors of a state, in host memory."""


class BackendChoice(NamedTuple):
    """The backend of a training and the reason."""

    name: str
    why: str


def choose(
    requested: str, device: str, planned: Iterable[int], obstacle: str = ""
) -> BackendChoice:
    """Return the backend of a training: CUDA graphs where they are possible and faster, else eager.

    ``planned`` is the number of planned steps of each shape, the obstacle why steps cannot be captured.

    >>> choose("auto", "cuda", [400, 3])
    BackendChoice(name='cuda-graphs', why='1 of 2 shapes has at least 20 planned steps')
    """
    if requested == "eager":
        return BackendChoice("eager", "requested")
    if device != "cuda":
        needs = "CUDA graphs require a CUDA device"
        return BackendChoice("eager", f"on {device}" if requested == "auto" else needs)
    if obstacle:
        return BackendChoice("eager", obstacle)
    shapes = list(planned)
    often = sum(steps >= MIN_PLANNED_STEPS for steps in shapes)
    has = "has" if often == 1 else "have"
    why = f"{often} of {len(shapes)} shapes {has} at least {MIN_PLANNED_STEPS} planned steps"
    return BackendChoice("cuda-graphs" if often else "eager", why)


@dataclass
class Graph:
    """A captured step, ``verified`` once it has changed the state as an eager step did.

    A replay accesses memory by address, so ``inputs`` keeps that memory allocated.
    """

    rows: Tensor
    replay: Callable[[], None]
    inputs: Mapping[int, UntypedStorage]
    verified: bool = False

    def run(self, rows: Tensor) -> None:
        """Replay the step on other rows."""
        self.rows.copy_(rows)
        self.replay()


class Graphs:
    """Captures one step of each shape and replays it.

    The first step of a shape is eager. The second step is observed, and then captured if no tensor that it allocated is
    still in use. The third step is executed as a graph and, from the same state, eagerly. The graph is verified if both
    agree in every active member; the result of the eager step is used. If the capture or the verification fails, the
    rest of the training is eager, and the reason is logged. Every call gets the ``StackTraining``.

    Args:
        planned: Planned steps by the first three sizes of a shape.
        capture: Captures a call.
        log: Receives the reason of a fallback.
    """

    def __init__(
        self,
        planned: Mapping[tuple[int, int, int], int],
        capture: Capture,
        log: Callable[[str], None],
    ) -> None:
        self.planned, self.capture, self.log = planned, capture, log
        self.graphs: dict[BatchShape, Graph] = {}
        self.fell_back = False
        self._steps: Counter[tuple[int, int, int]] = Counter()
        self._seen: Counter[BatchShape] = Counter()

    def __call__(self, training: Any, spec: BatchSpec) -> None:
        """Execute a step; if the replay of a verified graph raises, the state is undefined."""
        rows, shape = spec
        graph = self.graphs.get(shape)
        if graph is not None and graph.verified:
            graph.run(rows)
        elif graph is not None:
            self._verify(graph, training, spec)
        elif (
            self._seen[shape]
            and not self.fell_back
            and self.planned.get(shape[:3], 0) - self._steps[shape[:3]] >= MIN_PLANNED_STEPS
        ):
            self._capture(training, spec)
        else:
            training.update(rows, shape)
        self._seen[shape] += 1
        self._steps[shape[:3]] += 1

    def _capture(self, training: Any, spec: BatchSpec) -> None:
        """Execute a step, and capture it if no tensor that it allocated is still in use."""
        rows, shape = spec.rows.clone(), spec.shape
        with Witness() as witness:
            training.update(rows, shape)
        if kept := witness.kept():
            if self._seen[shape] == ATTEMPTS:
                self._fall_back(f"steps keep tensors that they allocate ({kept} in the last one)")
            return
        try:
            self.graphs[shape] = Graph(
                rows, self.capture(lambda: training.update(rows, shape)), witness.inputs
            )
        except (
            Exception
        ) as error:  # eager steps raise the same error unless it is specific to capture
            self._fall_back(f"the capture failed: {first_line(error)}")
        finally:
            training.clear_gradients()

    def _verify(self, graph: Graph, training: Any, spec: BatchSpec) -> None:
        """Execute a step as a graph and from the same state eagerly, and compare both."""
        before, replayed, fault = None, None, ""
        try:
            before = _copied(training.state())
            graph.run(spec.rows)
            replayed = _copied(training.state())
        except Exception as error:  # such as torch.OutOfMemoryError
            fault = f"the first replay failed: {first_line(error)}"
        training.clear_gradients()
        if before is not None:
            with torch.no_grad():
                for kind, parts in training.state().items():
                    torch._foreach_copy_(
                        [owned.tensor.detach() for owned in parts], list(before[kind])
                    )
        training.update(spec.rows, spec.shape)
        if before is not None and replayed is not None:
            # If the loss of every active member is infinite or NaN, nothing is compared.
            difference, compared = compare(
                before, replayed, training.state(), training.active_members
            )
            graph.verified = compared and not difference
            fault = difference and f"a replayed step differs from the eager step: {difference}"
        if fault:
            self._fall_back(fault)

    def _fall_back(self, why: str) -> None:
        self.fell_back = True
        self.graphs.clear()
        self.log(f"cuda-graphs falls back to eager: {why}")


class Witness(TorchDispatchMode):
    """Records which memory the operations of a step access, and which new memory outlives the step."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs: dict[int, UntypedStorage] = {}
        """Memory that operations access and did not allocate, by address; it is kept allocated."""
        self._made: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Execute an operation and record its memory."""
        for storage in _storages((args, kwargs or {})):
            if storage._cdata not in self._made:
                self.inputs[storage._cdata] = storage
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in self.inputs and storage._cdata not in self._made:
                self._made[storage._cdata] = StorageWeakRef(storage)
        return result

    def kept(self) -> int:
        """Return the number of tensors that the step allocated and that are still in use."""
        return sum(not reference.expired() for reference in self._made.values())


def _storages(value: Any) -> Iterable[UntypedStorage]:
    if isinstance(value, Tensor):
        yield value.untyped_storage()
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _storages(item)
    elif isinstance(value, dict):
        yield from _storages(list(value.values()))


class StepNorms(NamedTuple):
    """Norms of the differences between three states: before a step, after it was replayed, after it ran eagerly."""

    replay_error: float
    eager_change: float
    replayed_change: float


def compare(
    before: Values, replayed: Values, eager: State, active: Sequence[int]
) -> tuple[str, bool]:
    """Compare the changes of a replayed step with those of the eager step, per active member.

    A member with an eager change that is not finite agrees if its replayed change is not finite either.

    Args:
        before: The state before both steps.
        replayed: The state after the replayed step.
        eager: The state after the eager step.
        active: Members to compare. Tensors shared by all members are compared too.

    Returns:
        The first difference, empty if there is none; and whether the step can be verified: there is a difference, or
        all eager changes of an active member are finite.
    """
    num_members = 0
    for tensors in eager.values():
        for _, members in tensors:
            if members:
                num_members = max(num_members, 1 + max(members))
    shared = num_members  # the row of tensors that all members share
    finite = set(active)
    for kind, tensors in eager.items():
        norms = _step_norms(tensors, replayed[kind], before[kind], num_members)
        for row in (*active, shared):
            error, eager_change, replayed_change = norms[row]
            agrees = error <= MAX_REPLAY_DIFFERENCE * eager_change
            if not math.isfinite(eager_change):
                finite.discard(row)
                agrees = not math.isfinite(replayed_change)
            if not agrees:
                member = "" if row == shared else f" of member {row}"
                difference = f"{kind}{member} differ by {error:.3g}"
                difference += f", where the eager step changed them by {eager_change:.3g}"
                return difference, True
    return "", bool(finite)


def _step_norms(
    eager: Sequence[Owned], replayed: Sequence[Tensor], before: Sequence[Tensor], num_members: int
) -> list[StepNorms]:
    """Return the norms of each member over all tensors of a kind and, last, those of tensors that all members share.

    They are computed in float64 on the device of the state, for a few members at a time (`COMPARED_AT_ONCE`).
    """
    device = eager[0].tensor.device
    squares = torch.zeros(3, num_members + 1, dtype=torch.float64, device=device)
    for (tensor, members), replayed_copy, before_copy in zip(eager, replayed, before, strict=True):
        if members is None:
            members = (num_members,)
        rows = torch.tensor(members, device=device)
        eager_rows = tensor.detach().reshape(len(members), -1)
        replayed_rows = replayed_copy.reshape(len(members), -1)
        before_rows = before_copy.reshape(len(members), -1)
        chunk = max(1, COMPARED_AT_ONCE // max(1, eager_rows.shape[1]))
        for first in range(0, len(members), chunk):
            part = slice(first, first + chunk)
            start = before_rows[part].to(device, torch.float64)
            after_eager = eager_rows[part].to(device, torch.float64)
            after_replay = replayed_rows[part].to(device, torch.float64)
            squares[0].index_add_(0, rows[part], (after_replay - after_eager).square().sum(1))
            squares[1].index_add_(0, rows[part], (after_eager - start).square().sum(1))
            squares[2].index_add_(0, rows[part], (after_replay - start).square().sum(1))
    return [StepNorms(*norms) for norms in squares.sqrt().T.tolist()]


def _copied(state: State) -> Values:
    """Return copies in host memory: a stack may use all memory of a GPU."""
    return {
        kind: [owned.tensor.detach().to("cpu", copy=True) for owned in parts]
        for kind, parts in state.items()
    }
