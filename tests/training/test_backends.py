"""Replayed steps equal eager steps, and failures of a backend do not change a training."""

import gc
import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headtohead.config.builder import resolve
from headtohead.data import cache_root, prepare
from headtohead.model import attention, attention_context
from headtohead.model.members import shape_key
from headtohead.plugins.registry import current
from headtohead.schema.run_config import RunConfig
from headtohead.training import backends
from headtohead.training.backends import BatchSpec, Graphs, Witness, choose
from headtohead.training.loop import End, StackTraining, planned_shapes
from headtohead.training.optimise import clip_gradients
from made import case_table

from .capture import Capture, no_fault, tensors

CPU = torch.device("cpu")
STEPS = 9

SHIFTED = {"encoder": "sinusoidal", "decoder": "rotary", "cross": "none"}
KINDS: dict[str, list[dict[str, Any]]] = {
    "plain": [{}],
    "dropped": [{"model": {"dropout": 0.2}}],
    "two": [
        {"model": {"dropout": 0.1}, "train": {"lr": 0.01}},
        {"model": {"dropout": 0.2}, "train": {"label_smoothing": 0.1}, "positional": "rotary"},
    ],
    "three rates": [{"train": {"lr": lr, "clip_norm": None}} for lr in (0.01, 1e6, 0.02)],
    "smoothed": [{"train": {"label_smoothing": 0.1}}],
    "scheduled": [{"train": {"warmup_steps": 5, "schedule": "cosine"}}],
    "not clipped": [{"train": {"clip_norm": None}}],
    "relative": [{"positional": "shaw-relative"}],
    "unlike": [
        {"train": {"lr": lr, "clip_norm": clip}, "positional": positional, "model": model}
        for lr, clip in ((0.01, 0.5), (0.002, 1.0))
        for positional in ("sinusoidal", SHIFTED, "learned", "sinusoidal")
        for model in ({"dropout": 0.1, "mask_value": "-inf"}, {"mask_value": "-1e9"})
    ],
}


def tiny(raw: dict[str, Any], **train: Any) -> RunConfig:
    model = {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, **raw.get("model", {})}
    train = {"steps": STEPS, "batch_tokens": 400, **train, **raw.get("train", {})}
    data = {"dataset": "toy-grammar", "size": 70}
    return resolve({**raw, "data": data, "model": model, "train": train})


def training(
    kind: str = "plain",
    backend: str = "auto",
    precision: str = "float32",
    early: dict[str, Any] | None = None,
    pieces: int = 1,
    **options: Any,
) -> StackTraining:
    raws = (KINDS | ENTRIES)[kind]
    own = {"backend": backend, "precision": precision}
    if early is not None:
        own["early_stopping"] = early
    configs = [tiny(raw, **own) for raw in (raws * 3 if len(raws) == 1 else raws)]
    data = prepare(configs[0].data, cache_root())
    seeds = range(1, len(configs) + 1)
    stack = StackTraining(configs[0], seeds, data, CPU, configs=configs, **options)
    stack.num_microbatches = pieces
    return stack


def replayed(
    stack: StackTraining, capture: Any = None, log: list[str] | None = None
) -> Callable[[], int]:
    """Make a training capture every repeated shape, and return the number of replays."""
    replays = 0

    def record(work: Callable[[], None]) -> Callable[[], None]:
        with Capture() as captured:
            work()

        def replay() -> None:
            nonlocal replays
            replays += 1
            captured.replay()

        return replay

    often = dict.fromkeys(planned_shapes(stack.batches, STEPS), 10**6)
    stack.backend = Graphs(often, capture or record, ([] if log is None else log).append)
    return lambda: replays


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable tests of tensor values on the host, as on a GPU, in eager trainings too."""
    for module in (attention, attention_context):
        monkeypatch.setattr(module, "any_or_unknown", lambda flags: True)


def values(stack: StackTraining) -> list[Tensor]:
    return [tensor.tensor.detach().clone() for group in stack.state().values() for tensor in group]


def train(stack: StackTraining) -> list[Tensor]:
    for cut in itertools.islice(stack._batches(), STEPS):
        stack._step(cut)
    return values(stack)


@cache
def trained_eagerly(kind: str, pieces: int = 1) -> list[Tensor]:
    """Return the state after an eager training, as a reference."""
    return train(training(kind, pieces=pieces))


def assert_falls_back(stack: StackTraining, kind: str, why: str, capture: Any = None) -> None:
    """Check that a training with graphs falls back for a reason, and that its state is that of an eager training."""
    log: list[str] = []
    replayed(stack, capture, log)
    found = train(stack)
    (line,) = log
    assert line.startswith("cuda-graphs falls back to eager: ")
    assert why in line
    assert "\n" not in line
    assert all(parameter.grad is None for parameter in stack.parameters)
    assert same(found, trained_eagerly(kind))


def same(found: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Return whether all bits are equal, NaN included."""
    return all(
        torch.equal(a.nan_to_num(7e77), b.nan_to_num(7e77)) and torch.equal(a.isnan(), b.isnan())
        for a, b in zip(found, expected, strict=True)
    )


@case_table(
    ("kind", "pieces"),
    [("scheduled", 1), ("dropped", 1), ("relative", 1), ("unlike", 3)],
    default=1,
)
def test_a_replayed_training_is_the_eager_one_bit_for_bit(kind: str, pieces: int) -> None:
    log: list[str] = []
    stack = training(kind, pieces=pieces)
    replays = replayed(stack, log=log)
    found = train(stack)
    assert not log
    assert replays() >= (4 if pieces == 1 else 2)
    assert same(found, trained_eagerly(kind, pieces))


# -- faults: the training is the eager one, whatever fails ----------------------------------------


class Planted(RuntimeError):
    """A planted fault."""


def at(place: int | str) -> Callable[[int, str], None]:
    """Raise at an operation, by number or by name."""

    def fault(number: int, name: str) -> None:
        if place in (number, name):
            raise Planted("planted\nmore of it")

    return fault


def in_the_capture(place: int | str | None) -> Any:
    """A capture that fails at an operation, or after its last one."""

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        with Capture(at(place) if place is not None else no_fault):
            work()
        raise Planted("planted")

    return capture


def as_replayed(replay: Callable[[Capture], object]) -> Any:
    """A capture whose graph calls ``replay``."""

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        with Capture() as captured:
            work()
        return lambda: replay(captured)  # type: ignore[return-value]

    return capture


def without_an_operation(name: str) -> Any:
    """A graph without some operations."""

    def replay(captured: Capture) -> None:
        captured.operations = [
            call for call in captured.operations if call[0].overloadpacket.__name__ != name
        ]
        captured.replay()

    return as_replayed(replay)


STAGES = [
    (in_the_capture("embedding_dense_backward"), "the capture failed: Planted: planted"),
    (
        as_replayed(lambda captured: captured.replay(at("_fused_adamw_"))),
        "the first replay failed: Planted: planted",
    ),
    (without_an_operation("bmm"), "a replayed step differs from the eager step"),
    *((in_the_capture(place), "the capture failed: Planted") for place in ("_foreach_add_", None)),
    (without_an_operation("_fused_adamw_"), "a replayed step differs"),
]


@case_table(("capture", "why"), STAGES, default=1)
def test_a_failed_capture_does_not_change_the_training(capture: Any, why: str) -> None:
    assert_falls_back(training("dropped"), "dropped", f": {why}", capture)


def test_a_verified_replay_that_fails_ends_the_training() -> None:
    """The worker then ends, and a new process continues from the resume point."""
    log: list[str] = []
    stack = training("dropped")

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        """The first replay verifies the graph; the second replay fails."""
        with Capture() as captured:
            work()
        faults = iter([no_fault, at("bmm")])
        return lambda: captured.replay(next(faults))

    replayed(stack, capture, log)
    with pytest.raises(Planted):
        stack.run()
    assert not log


def test_gradients_of_a_step_that_failed_are_not_accumulated_onto() -> None:
    stack = training("dropped")
    for parameter in stack.parameters:
        parameter.grad = torch.full_like(parameter, torch.nan)
    assert same(train(stack), trained_eagerly("dropped"))


def baked_rate(stack: StackTraining) -> None:
    """A learning rate that a graph would capture as a constant."""
    update = stack.optimizer.update

    def wrong() -> None:
        groups = stack.optimizer.groups
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = stack.optimizer.rate(0, stack.progress.step + 1)
        update()
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate

    stack.optimizer.update = wrong  # type: ignore[method-assign]


def baked_sum(stack: StackTraining) -> None:
    """A number on the host in the sums."""
    update = stack.update

    def wrong(*args: Any, **named: Any) -> None:
        update(*args, **named)
        stack.loss_sums.add_(stack.progress.step)

    stack.update = wrong  # type: ignore[method-assign]


def kept_table(stack: StackTraining) -> None:
    """A table that every step allocates: inside a capture it would not be computed."""
    eager, tables = stack.gradients, list[Tensor]()

    def gradients(*given: Any) -> Tensor:
        tables.append(torch.ones(3) * 2)
        return eager(*given) * tables[-1]

    stack.gradients = gradients  # type: ignore[method-assign]


NOT_THE_STEP = [
    (baked_rate, "a replayed step differs"),
    (baked_sum, "a replayed step differs"),
    (kept_table, "steps keep tensors that they allocate"),
]


@case_table(("change", "why"), NOT_THE_STEP, default=1)
def test_a_graph_that_is_not_the_step_is_not_used(
    change: Callable[[StackTraining], None], why: str
) -> None:
    found, log = [], list[str]()
    for graphs in (True, False):
        stack = training("scheduled")
        change(stack)
        if graphs:
            replays = replayed(stack, log=log)
        found.append(train(stack))
    (line,) = log
    assert line.startswith("cuda-graphs falls back to eager: ")
    assert why in line
    assert change is not kept_table or replays() == 0
    assert same(*found)


@pytest.mark.slow
def test_a_member_that_diverges_does_not_end_the_graphs_of_the_others() -> None:
    log, stack = list[str](), training("three rates")
    replays = replayed(stack, log=log)
    assert same(train(stack), trained_eagerly("three rates"))
    assert not log
    assert replays() >= 4
    assert stack.loss_sums.isfinite().tolist() == [True, False, True]


@case_table("compared", [10, 2**22], default=1)
def test_a_graph_that_is_wrong_for_one_member_is_not_used(
    compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another member diverges, so the norm over all members would be NaN."""
    monkeypatch.setattr("headtohead.training.backends.COMPARED_AT_ONCE", compared)
    stack = training("three rates")

    def replay(captured: Capture) -> None:
        captured.replay()
        stack.parameters[0].detach()[2] += 1e-2

    assert_falls_back(stack, "three rates", "weights of member 2 differ by", as_replayed(replay))


@pytest.mark.slow
def test_a_member_that_has_ended_is_not_compared() -> None:
    log: list[str] = []
    stack = training("three rates")
    stack.retire(0, End.STOPPED_EARLY)  # its losses are finite

    def replay(captured: Capture) -> None:
        captured.replay()
        stack.parameters[0].detach()[0] = 0

    replays = replayed(stack, as_replayed(replay), log)
    found = train(stack)
    assert not log
    others = [
        [
            tensor[1:] for tensor in state if tensor.dim() and len(tensor) == 3
        ]  # not the optimizer's, of one member each
        for state in (found, trained_eagerly("three rates"))
    ]
    assert same(*others)
    assert replays() == 0, "the graphs are those of this test"


@pytest.mark.slow
def test_a_graph_is_not_verified_by_members_that_have_all_diverged() -> None:
    stack = training("plain")
    replayed(stack)
    with torch.no_grad():
        for parameter in stack.parameters:
            parameter.fill_(torch.nan)
    train(stack)
    assert isinstance(stack.backend, Graphs)
    assert stack.backend.graphs
    assert not any(graph.verified for graph in stack.backend.graphs.values())


@pytest.mark.parametrize("changed", [torch.nan, torch.inf])
def test_a_step_that_is_finite_only_when_it_is_replayed_is_a_difference(changed: float) -> None:
    before = {"weights": [torch.zeros(2, 3)]}
    eager = torch.ones(2, 3)
    eager[1] = changed
    state = {"weights": [backends.Owned(eager, (0, 1))]}
    members = [0, 1]
    assert backends.compare(before, {"weights": [eager.clone()]}, state, members) == ("", True)
    difference, _ = backends.compare(before, {"weights": [torch.ones(2, 3)]}, state, members)
    assert difference.startswith("weights of member 1 differ by ")


@case_table("copy", [1, 4], default=1)
def test_where_memory_lacks_for_a_copy_of_the_state_the_training_goes_on(
    copy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is copied before and after the first replay of each graph."""
    copied, calls = backends._copied, itertools.count(1)

    def short(state: Any) -> Any:
        if next(calls) == copy:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return copied(state)

    monkeypatch.setattr(backends, "_copied", short)
    assert_falls_back(training("dropped"), "dropped", "OutOfMemoryError: CUDA out of memory")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["two", pytest.param("unlike", marks=pytest.mark.slow)])
def test_a_stack_is_freed_without_the_garbage_collector(kind: str) -> None:
    gc.collect()
    gc.disable()
    try:
        for graphs in (False, True):
            stack = training(kind)
            if graphs:
                replayed(stack)
            train(stack)
            memory = [weakref.ref(owner) for owner in (stack, stack.model, stack.parameters[0])]
            del stack
            assert [reference() for reference in memory] == [None, None, None]
    finally:
        gc.enable()


def test_shapes_with_few_steps_left_are_not_captured() -> None:
    stack = training()
    replays = replayed(stack)
    assert isinstance(stack.backend, Graphs)
    stack.backend.planned = dict.fromkeys(stack.backend.planned, 20)
    train(stack)
    assert replays() == 0


@pytest.mark.parametrize(
    ("asked", "device", "planned", "obstacle", "expected"),
    [
        ("auto", "cpu", [400], "", ("eager", "on cpu")),
        ("auto", "cuda", [19, 4], "", ("eager", "0 of 2 shapes have at least 20 planned steps")),
        (
            "auto",
            "cuda",
            [20, 21],
            "",
            ("cuda-graphs", "2 of 2 shapes have at least 20 planned steps"),
        ),
        ("auto", "cuda", [400], "it draws", ("eager", "it draws")),
        ("cuda-graphs", "cpu", [400], "", ("eager", "CUDA graphs require a CUDA device")),
        (
            "cuda-graphs",
            "cuda",
            [400],
            "",
            ("cuda-graphs", "1 of 1 shapes has at least 20 planned steps"),
        ),
        ("eager", "cuda", [400], "", ("eager", "requested")),
    ],
)
def test_the_backend_is_chosen_from_what_is_planned(
    asked: str, device: str, planned: list[int], obstacle: str, expected: tuple[str, str]
) -> None:
    assert choose(asked, device, planned, obstacle) == expected


def test_planned_shapes_are_those_that_are_trained() -> None:
    stack = training()
    planned = planned_shapes(stack.batches, 3 * stack.batches.steps_per_epoch)
    trained: dict[tuple[int, int, int], int] = {}
    for cut in itertools.islice(stack._batches(), stack.batches.steps_per_epoch):
        trained[cut.shape[:3]] = trained.get(cut.shape[:3], 0) + 3
        stack.progress.step += 1
    assert planned == trained


class Crossings(TorchDispatchMode):
    """Operations that access host memory, or memory that no earlier step accessed."""

    def __init__(self, known: set[int] | None) -> None:
        super().__init__()
        self.known = known
        self.made: dict[int, Tensor] = {}
        self.outside: dict[int, Tensor] = {}
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors((args, kwargs or {}))
        outside = {storage(tensor): tensor for tensor in given if storage(tensor) not in self.made}
        new = self.known is not None and not outside.keys() <= self.known
        if new or any(tensor.device.type == "cpu" and tensor.dim() for tensor in given):
            self.found.append(str(func))
        self.outside |= outside
        found = func(*args, **(kwargs or {}))
        # Kept, so that no later tensor has the address of one of these.
        self.made |= {
            storage(tensor): tensor
            for tensor in tensors(found)
            if storage(tensor) not in self.outside
        }
        return found


def storage(one: Tensor) -> int:
    return one.untyped_storage()._cdata


def every_entry() -> dict[str, list[dict[str, Any]]]:
    """Return every encoding and style, stacked where possible."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for family in ("positional", "attention"):
        for name in current().entries[family]:
            if name != "embedding-softmax":  # wants targets of d_model tokens
                raw = {family: {"encoder": name, "decoder": name}}
                key = shape_key(tiny(raw))
                found.setdefault(key, {})[name] = raw
    return {" ".join(raws): list(raws.values()) for raws in found.values()}


ENTRIES = every_entry()


@case_table(
    "kind", ["unlike", *(kind for kind in (*ENTRIES, *KINDS) if kind != "unlike")], default=1
)
def test_the_second_step_of_a_shape_leaves_no_new_tensor_behind_and_asks_the_host_for_nothing(
    kind: str,
) -> None:
    """Inside a capture, later steps would use a new tensor without data, and the host cannot read.

    torch's meta device has no memory that the host could read, as a GPU. The update itself is torch's.
    """
    stack = training(kind)
    (cut,) = itertools.islice(stack._batches(), 1)
    stack._step(cut)
    with Witness() as witness:
        stack.update(*cut)
    assert witness.kept() == 0
    if stack.model.obstacle:
        assert stack.model.obstacle == "its encoding samples positions"
        return
    meta, stack = torch.device("meta"), training(kind)
    stack.model.to(meta).train()
    split = stack.splits["train"]
    for name in ("source", "source_lengths", "target", "target_lengths"):
        object.__setattr__(split, name, getattr(split, name).to(meta))
    stack.parameters = [
        parameter for parameter in stack.model.parameters() if parameter.requires_grad
    ]
    cut = BatchSpec(cut.rows.to(meta), cut.shape)
    found: list[Crossings] = []
    for step in range(2):  # the first step creates what later steps use
        stack.model.dropout_rng.set_step(step)
        known = {*found[0].outside, *found[0].made} if found else None
        with Crossings(known) as crossings:
            stack.gradients(cut.rows, cut.shape)
            if stack.clip_norm != float("inf"):
                clip_gradients(stack.parameters, stack.clip_norm, stack.owners)
        for parameter in stack.parameters:
            parameter.grad = None
        found.append(crossings)
    assert not found[1].found
