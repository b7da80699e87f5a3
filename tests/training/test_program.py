"""Steps that are replayed are the steps that would be computed, or they are not replayed."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from headtohead.data import cache_root, prepare
from headtohead.experiment.resolve import resolve
from headtohead.experiment.schema import RunConfig
from headtohead.model.members import shape
from headtohead.plugins import current
from headtohead.training.loop import StackTraining, planned_shapes
from headtohead.training.optimise import clip_gradients
from headtohead.training.program import Cut, Eager, Graphs, Witness, choose

from .tape import Tape, storage, tensors

CPU = torch.device("cpu")
STEPS = 15

SHIFTED = {"encoder": "sinusoidal", "decoder": "rotary", "cross": "none"}
KINDS: dict[str, list[dict[str, Any]]] = {
    "plain": [{}],
    "dropped": [{"model": {"dropout": 0.2}}],
    "two": [
        {"model": {"dropout": 0.1}, "train": {"lr": 0.01}},
        {"model": {"dropout": 0.2}, "train": {"label_smoothing": 0.1}, "positional": "rotary"},
    ],
    "smoothed": [{"train": {"label_smoothing": 0.1}}],
    "scheduled": [{"train": {"warmup_steps": 9, "schedule": "cosine"}}],
    "not clipped": [{"train": {"clip_norm": None}}],
    "relative": [{"positional": "shaw-relative"}],
    "unlike": [
        {"train": {"lr": lr, "clip_norm": clip}, "positional": positional, "model": model}
        for lr, clip in ((0.01, 0.5), (0.002, 1.0))
        for positional in ("sinusoidal", SHIFTED, "learned", "sinusoidal")
        for model in ({"dropout": 0.1, "fill": "-inf"}, {"fill": "-1e9"})
    ],
}


def tiny(raw: dict[str, Any], **train: Any) -> RunConfig:
    model = {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, **raw.get("model", {})}
    train = {"steps": STEPS, "batch_tokens": 40, **train, **raw.get("train", {})}
    data = {"dataset": "toy-grammar", "size": 60}
    return resolve({**raw, "data": data, "model": model, "train": train}, current())


def training(
    kind: str = "plain", program: str = "auto", precision: str = "float32", **options: Any
) -> StackTraining:
    raws = (KINDS | ENTRIES)[kind]
    own = {"program": program, "precision": precision}
    configs = [tiny(raw, **own) for raw in (raws * 3 if len(raws) == 1 else raws)]
    data = prepare(configs[0].data, cache_root())
    seeds = range(1, len(configs) + 1)
    return StackTraining(configs[0], seeds, data, CPU, configs=configs, **options)


class Recorder:
    """Records on a tape; that computes too, so the state is put back."""

    def __init__(self, stack: StackTraining) -> None:
        self.stack = stack
        self.replays = 0

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        state = [one for group in self.stack.state().values() for one in group]
        before = [one.detach().clone() for one in state]
        with Tape() as tape:
            work()
        with torch.no_grad():
            for one, value in zip(state, before, strict=True):
                one.copy_(value)

        def replay() -> None:
            self.replays += 1
            tape.replay()

        return replay


def replayed(stack: StackTraining, record: Any = None, said: list[str] | None = None) -> Recorder:
    """Let a training replay every shape that it meets again."""
    recorder = Recorder(stack)
    often = dict.fromkeys(planned_shapes(stack.plan, STEPS), 10**6)
    stack.program = Graphs(
        stack._update, stack.state, often, record or recorder,
        (said if said is not None else []).append,
    )  # fmt: skip
    return recorder


def train(stack: StackTraining) -> list[torch.Tensor]:
    for cut in itertools.islice(stack._batches(), STEPS):
        stack._step(cut)
    return [one.detach().clone() for group in stack.state().values() for one in group]


@pytest.mark.parametrize(
    ("kind", "pieces"), [("scheduled", 1), ("dropped", 1), ("relative", 1), ("unlike", 3)]
)
def test_a_replayed_training_is_the_computed_one_bit_for_bit(kind: str, pieces: int) -> None:
    said: list[str] = []
    stack = training(kind, micro_batch=pieces)
    recorder = replayed(stack, said=said)
    found = train(stack)
    assert not said
    assert recorder.replays >= 4
    expected = train(training(kind, micro_batch=pieces))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def baked_rate(stack: StackTraining) -> None:
    """A learning rate that a record would hold as a number."""
    update = stack.optimizer.update

    def wrong() -> None:
        groups = stack.optimizer.optimizer.param_groups
        rates = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = float(group["lr"])
        update()
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate

    stack.optimizer.update = wrong  # type: ignore[method-assign]


def baked_dropout(stack: StackTraining) -> None:
    """A key of the dropout that a record would hold as a tensor of its own."""
    see = stack.model.stream.see

    def wrong(*args: Any, **named: Any) -> None:
        keys = stack.model.stream.get_buffer("keys")
        stack.model.stream.get_buffer("starts").copy_(keys + stack.progress.step)
        see(*args, **named)

    stack.model.stream.see = wrong  # type: ignore[method-assign]


def baked_sum(stack: StackTraining) -> None:
    """A number of the host's in the sums."""
    update = stack._update

    def wrong(*args: Any) -> None:
        update(*args)
        stack.loss_sums.add_(stack.progress.step)

    stack._update = wrong  # type: ignore[method-assign]


@pytest.mark.parametrize("bake", [baked_rate, baked_dropout, baked_sum])
def test_a_record_that_is_not_the_step_is_given_up_and_nothing_is_lost(
    bake: Callable[[StackTraining], None],
) -> None:
    found, said = [], list[str]()
    for program in (replayed, lambda stack, said: None):
        stack = training("dropped")
        bake(stack)
        if isinstance(stack.program, Eager):
            stack.program = Eager(stack._update)
        program(stack, said=said)
        found.append(train(stack))
    assert len(said) == 1
    assert said[0].startswith("CUDA graphs were given up, every step is computed: a replayed step")
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_where_recording_fails_the_training_goes_on() -> None:
    said: list[str] = []

    def record(work: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    stack = training()
    replayed(stack, record, said)
    found = train(stack)
    assert said == [
        "CUDA graphs were given up, every step is computed: recording failed: RuntimeError: "
        "operation not permitted when stream is capturing"
    ]
    expected = train(training())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_where_memory_lacks_to_prove_a_record_the_training_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def copied(groups: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("headtohead.training.program._copied", copied)
    said: list[str] = []
    stack = training()
    replayed(stack, said=said)
    found = train(stack)
    assert said == [
        "CUDA graphs were given up, every step is computed: there is no memory to prove a record "
        "with"
    ]
    expected = train(training())
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_shapes_with_few_steps_left_are_not_recorded() -> None:
    stack = training()
    recorder = replayed(stack)
    assert isinstance(stack.program, Graphs)
    stack.program.planned = dict.fromkeys(stack.program.planned, 20)
    train(stack)
    assert recorder.replays == 0


def test_memory_that_a_record_reads_is_kept_and_what_it_made_is_not() -> None:
    tables = [torch.arange(9.0)]
    address = tables[0].data_ptr()
    with Witness() as witness:
        own = tables[0][2:5] * 2
        own.add_(tables[0].sum())
    tables.clear()
    gc.collect()
    (kept,) = witness.read.values()
    assert kept.data_ptr() == address
    assert torch.tensor([], dtype=torch.float32).set_(kept).tolist() == list(range(9))


@pytest.mark.parametrize(
    ("asked", "device", "planned", "obstacle", "expected"),
    [
        ("auto", "cpu", [400], "", "eager (on cpu)"),
        ("auto", "cuda", [19, 4], "", "eager (no shape has 20 planned steps, so cuda-graphs "
         "does not pay)"),
        ("auto", "cuda", [20, 21], "", "cuda-graphs (2 of 2 shapes have at least 20 planned "
         "steps)"),
        ("auto", "cuda", [400], "it draws", "eager (it draws)"),
        ("cuda-graphs", "cpu", [400], "", "eager (CUDA graphs need a CUDA device)"),
        ("eager", "cuda", [400], "", "eager (asked for)"),
        ("compile", "cpu", [5000, 3], "", "compile (1 of 2 shapes has at least 5000 planned "
         "steps)"),
        ("compile", "cpu", [4999], "", "eager (no shape has 5000 planned steps, so compile does "
         "not pay)"),
    ],
)  # fmt: skip
def test_the_program_is_chosen_from_what_is_planned(
    asked: str, device: str, planned: list[int], obstacle: str, expected: str
) -> None:
    assert choose(asked, device, planned, obstacle).words == expected


def test_planned_shapes_are_those_that_are_trained() -> None:
    stack = training()
    planned = planned_shapes(stack.plan, 3 * stack.plan.steps_per_epoch)
    trained: dict[tuple[int, int, int], int] = {}
    for cut in itertools.islice(stack._batches(), stack.plan.steps_per_epoch):
        trained[cut.shape[:3]] = trained.get(cut.shape[:3], 0) + 3
        stack.progress.step += 1
    assert planned == trained


class Crossings(Tape):
    """Operations that read the host's memory, or what came from there since the last step."""

    def __init__(self, known: set[int] | None) -> None:
        super().__init__()
        self.known = known
        self.outside: set[int] = set()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors((args, kwargs))
        outside = {storage(one) for one in given} - self.made
        new = self.known is not None and not outside <= self.known
        if new or any(one.device.type == "cpu" and one.dim() for one in given):
            self.found.append(str(func))
        self.outside |= outside
        return super().__torch_dispatch__(func, types, args, kwargs)


def every_entry() -> dict[str, list[dict[str, Any]]]:
    """Return every encoding and style, those that can be stacked with each other together."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for family in ("positional", "attention"):
        for name in current().entries[family]:
            if name != "embedding-softmax":  # wants targets of d_model tokens
                raw = {family: {"encoder": name, "decoder": name}}
                key = shape(tiny(raw), current())
                found.setdefault(key, {})[name] = raw
    return {" ".join(raws): list(raws.values()) for raws in found.values()}


ENTRIES = every_entry()


@pytest.mark.parametrize("kind", [*KINDS, *ENTRIES])
def test_no_step_asks_the_host_for_anything(kind: str) -> None:
    """On torch's meta device, which like a GPU has no memory that the host could read.

    What is remembered is brought there in the first two steps; the third must read nothing else.
    What the update itself does is torch's.
    """
    stack = training(kind)
    if stack.model.obstacle:
        assert choose("auto", "cuda", [400], stack.model.obstacle).name == "eager"
        return
    meta = torch.device("meta")
    (cut,) = itertools.islice(stack._batches(), 1)
    stack.model.to(meta).train()
    split = stack.splits["train"]
    for name in ("source", "source_lengths", "target", "target_lengths"):
        object.__setattr__(split, name, getattr(split, name).to(meta))
    stack.parameters = [one for one in stack.model.parameters() if one.requires_grad]
    cut = Cut(cut.rows.to(meta), cut.shape)
    found, known = [], None
    for step in range(3):
        stack.model.stream.begin(step)
        with Crossings(known) as crossings:
            stack._backward(stack._batch(cut), cut.shape.live)
            if stack.clip_norm != float("inf"):
                clip_gradients(stack.parameters, stack.clip_norm, stack.owners)
        for one in stack.parameters:
            one.grad = None
        found.append(crossings)
        known = crossings.outside if step else None
    assert not found[2].found
