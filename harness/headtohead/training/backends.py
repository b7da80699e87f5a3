"""Execution backends: eager steps, and steps that are replayed as CUDA graphs.

A step of a small model has hundreds of operations, each launched by the host. On a GPU the launches
take longer than the operations. A CUDA graph launches all of them at once. It repeats the captured
operations on the same memory, so inputs that differ between steps are written to fixed tensors
before a replay: rows of the batch, learning rates, the key of the dropout.

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

from headtohead.errors import first_line
from headtohead.training.cuda import Capture, to_host

MIN_PLANNED_STEPS = 20
"""Planned steps of a shape from which CUDA graphs are faster in total; capturing takes as long as about six steps."""

MAX_REPLAY_DIFFERENCE = 0.05
"""Share of a step's change by which a replayed step may differ from the eager step."""

COMPARED_AT_ONCE = 2**22
"""Numbers of a tensor that are compared at a time, in float64, so that a comparison needs little memory."""

ATTEMPTS = 3
"""Steps of a shape that may leave new tensors behind before ``Graphs`` falls back to eager."""


class BatchShape(NamedTuple):
    """Shape of a batch; steps of equal shapes launch the same operations.

    Args:
        rows: Sentences of each member.
        source_time: Padded source length.
        target_time: Padded target length.
        num_target_tokens: Positions per member at which logits are computed.
    """

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


class Trainable(Protocol):
    """A training, as a backend executes its steps."""

    @property
    def active_members(self) -> Sequence[int]:
        """Members that still train."""

    def update(self, rows: Tensor, shape: BatchShape) -> None:
        """Execute the device's part of a step."""

    def state(self) -> State:
        """Return everything that ``update`` changes."""

    def clear_gradients(self) -> None:
        """Set all gradients to None."""


@dataclass(frozen=True)
class BackendChoice:
    """The backend of a training and the reason.

    >>> BackendChoice("eager", "on a CPU").description
    'eager (on a CPU)'
    """

    name: str
    why: str

    @property
    def description(self) -> str:
        """Backend and reason as text."""
        return f"{self.name} ({self.why})"


def choose(requested: str, device: str, planned: Iterable[int], obstacle: str = "") -> BackendChoice:
    """Return the backend of a training: CUDA graphs where they are possible and faster, else eager.

    Args:
        requested: ``train.backend``.
        device: Type of the device.
        planned: Planned steps of each shape.
        obstacle: Why steps cannot be captured; empty if they can.

    >>> choose("auto", "cuda", [400, 3]).description
    'cuda-graphs (1 of 2 shapes has at least 20 planned steps)'
    """
    if requested == "eager":
        return BackendChoice("eager", "requested")
    if device != "cuda":
        needs = "CUDA graphs require a CUDA device"
        return BackendChoice("eager", f"on {device}" if requested == "auto" else needs)
    if obstacle:
        return BackendChoice("eager", obstacle)
    least, shapes = MIN_PLANNED_STEPS, list(planned)
    often = sum(steps >= least for steps in shapes)
    if not often:
        return BackendChoice("eager", f"no shape has the {least} planned steps from which CUDA graphs are faster")
    has = "has" if often == 1 else "have"
    return BackendChoice("cuda-graphs", f"{often} of {len(shapes)} shapes {has} at least {least} planned steps")


class Eager:
    """Launches every operation of a step separately."""

    def __call__(self, training: Trainable, spec: BatchSpec) -> None:
        """Execute a step."""
        training.update(spec.rows, spec.shape)


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

    The first step of a shape is eager. It is then executed again under observation, and captured if
    no tensor that it allocated is still in use. The next step is executed eagerly and as a graph
    from the same state. The graph is verified if both agree in every active member; the result of
    the eager step is used. If the capture or the verification fails, state and gradients are those
    of the last eager step, the rest of the training is eager, and the reason is logged.

    Args:
        planned: Planned steps by the first three sizes of a shape.
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

    def __call__(self, training: Trainable, spec: BatchSpec) -> None:
        """Execute a step; if the replay of a verified graph raises, the state is undefined."""
        graph = self.graphs.get(spec.shape)
        if graph is None:
            training.update(spec.rows, spec.shape)
            self._steps[spec.shape[:3]] += 1
            if self._pays(spec.shape):
                self._capture(training, spec)
        elif graph.verified:
            graph.run(spec.rows)
        else:
            self._verify(graph, training, spec)

    def _pays(self, shape: BatchShape) -> bool:
        kind = shape[:3]
        left = self.planned.get(kind, 0) - self._steps[kind]
        return not self.fell_back and left >= MIN_PLANNED_STEPS

    def _capture(self, training: Trainable, spec: BatchSpec) -> None:
        """Capture the step that was just executed."""
        shape, saved, fault = spec.shape, None, ""
        try:
            rows, saved = spec.rows.clone(), _copied(training.state())
            with Witness() as witness:
                training.update(rows, shape)
            _put(training.state(), saved)
            kept = witness.kept()
            if kept:
                self._attempts[shape] += 1
                if self._attempts[shape] == ATTEMPTS:
                    fault = f"steps keep tensors that they allocate ({kept} in the last one)"
            else:
                replay = self.capture(lambda: training.update(rows, shape))
                self.graphs[shape] = Graph(rows, replay, witness.inputs)
        except Exception as error:  # eager steps raise the same error unless it is specific to capture
            fault = f"the capture failed: {first_line(error)}"
        finally:
            training.clear_gradients()
            if saved is not None:
                _put(training.state(), saved)
        if fault:
            self._fall_back(fault)

    def _verify(self, graph: Graph, training: Trainable, spec: BatchSpec) -> None:
        """Execute a step eagerly and as a graph, compare both, and use the eager result."""
        before, eager, fault = self._both(training, spec)
        if before is None or eager is None:
            training.update(spec.rows, spec.shape)
            self._fall_back(fault)
            return
        try:
            _put(training.state(), before)
            graph.run(spec.rows)
            comparison = compare(before, eager, training.state(), training.active_members)
            fault = f"a replayed step differs from the eager step: {comparison.fault}"
            fault = fault if comparison.fault else ""
            # If the loss of every active member is infinite or NaN, nothing was compared.
            graph.verified = comparison.compared and not fault
        except Exception as error:
            fault = f"the first replay failed: {first_line(error)}"
        finally:
            training.clear_gradients()
            _put(training.state(), eager)
        if fault:
            self._fall_back(fault)

    @staticmethod
    def _both(training: Trainable, spec: BatchSpec) -> tuple[Values | None, Values | None, str]:
        """Return copies of the state before and after an eager step.

        If the copies cannot be made, the state is that before the step, and the text is the reason.
        """
        before: Values | None = None
        try:
            before = _copied(training.state())
            training.update(spec.rows, spec.shape)
            return before, _copied(training.state()), ""
        except RuntimeError as error:  # includes torch.OutOfMemoryError
            training.clear_gradients()
            if before is not None:
                _put(training.state(), before)
            return None, None, f"a captured step could not be verified: {first_line(error)}"

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


@dataclass(frozen=True)
class StepComparison:
    """Result of a comparison of two steps; ``fault`` is empty if they agree.

    ``compared`` is False if no active member has finite values, so that nothing was compared.
    """

    fault: str
    compared: bool


def compare(
    before: Values, eager: Values, other: State, active: Sequence[int], share: float = MAX_REPLAY_DIFFERENCE
) -> StepComparison:
    """Compare the changes of a step with those of the eager step, per active member.

    A member with eager values that are not finite agrees if its other values are not finite either.

    Args:
        before: The state before both steps.
        eager: The state after the eager step.
        other: The state after the other step.
        active: Members to compare. Tensors shared by all members are compared too.
        share: Largest allowed difference, as a share of the norm of the eager change.
    """
    members = 1 + max((max(owned.members) for kind in other.values() for owned in kind if owned.members), default=-1)
    norms = [_norms(parts, before[kind], eager[kind], members) for kind, parts in other.items()]
    finite = set(active)
    for kind, (wrongs, changes, moves) in zip(other, torch.stack(norms).tolist(), strict=True):
        for slot in (*active, members):
            wrong, change, move = wrongs[slot], changes[slot], moves[slot]
            if not math.isfinite(change):
                finite.discard(slot)
                if not math.isfinite(move):
                    continue
            if not wrong <= share * change:
                member = "" if slot == members else f" of member {slot}"
                return StepComparison(
                    f"{kind}{member} differ by {wrong:.3g}, where the eager step changed them by {change:.3g}", True
                )
    return StepComparison("", bool(finite))


def _norms(other: Sequence[Owned], before: Sequence[Tensor], eager: Sequence[Tensor], members: int) -> Tensor:
    """Return norms of three differences by member, ``[3, member + 1]``; the last is of shared tensors.

    The differences are other − eager, eager − before and other − before, computed for some members at a time.
    """
    device = other[0].tensor.device
    squares = torch.zeros(3, members + 1, dtype=torch.float64, device=device)
    for index, (tensor, owners) in enumerate(other):
        slots = torch.tensor([members] if owners is None else owners, device=device)
        three = [x.detach().reshape(len(slots), -1) for x in (tensor, eager[index], before[index])]
        rows = max(1, COMPARED_AT_ONCE // max(1, three[0].shape[1]))
        for own, *parts in zip(slots.split(rows), *(x.split(rows) for x in three), strict=True):
            new, old, start = (part.to(device, torch.float64) for part in parts)
            for row, gap in zip(squares, (new - old, old - start, new - start), strict=True):
                row.index_add_(0, own, gap.square().sum(1))
    return squares.sqrt()


def _copied(state: State) -> Values:
    """Return copies in host memory: a stack may use all memory of a GPU."""
    tensors = iter(to_host([owned.tensor for parts in state.values() for owned in parts]))
    return {kind: [next(tensors) for _ in parts] for kind, parts in state.items()}


@torch.no_grad()
def _put(state: State, values: Values) -> None:
    for kind, parts in state.items():
        torch._foreach_copy_([owned.tensor.detach() for owned in parts], list(values[kind]))
