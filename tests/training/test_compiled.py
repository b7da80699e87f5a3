"""Compiled gradients equal eager gradients, or are not used."""

from __future__ import annotations

import gc
import itertools
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from headtohead.model.attention_context import all_assumed
from headtohead.training import compiled as module
from headtohead.training.backends import MIN_PLANNED_STEPS, Graphs
from headtohead.training.compiled import Compiled
from headtohead.training.loop import StackTraining

from .test_backends import training

# Warnings that torch raises while it imports its compiler.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIN_PLANNED_STEPS, "compile", 1)


def train(stack: StackTraining, steps: int = 8) -> list[Tensor]:
    """Train on batches of a single shape, so that it is compiled."""
    cuts = itertools.islice(stack._batches(), 200)
    first = next(cuts)
    same_shape = (cut for cut in cuts if cut.shape[:3] == first.shape[:3])
    for cut in [first, *itertools.islice(same_shape, steps - 1)]:
        stack._step(cut)
    return [parameter.detach().clone() for parameter in stack.model.parameters()]


def compiled(kind: str, messages: list[str]) -> StackTraining:
    return training(kind, "compile", "float64", on_fall_back=messages.append)


class Counted:
    """A backend of torch.compile that executes the trace, counts calls, and may fail."""

    def __init__(self, broken_from: int = 10**6, wrong: int | None = None) -> None:
        self.calls, self.broken_from, self.wrong = 0, broken_from, wrong

    def __call__(self, graph: Any, inputs: Any) -> Any:
        def run(*given: Tensor) -> list[Tensor | None]:
            self.calls += 1
            if self.calls >= self.broken_from:
                raise RuntimeError("planted")
            found: list[Tensor | None] = list(graph(*given))
            if self.wrong is not None:
                assert found[1] is not None
                found[1] = found[1].index_fill(0, torch.tensor([self.wrong]), 1.0)
            return found

        return run


@pytest.mark.slow
def test_compiled_training_equals_eager_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler backend traces like torch's default and generates no code.

    Code generation takes a minute, so the compiler is replaced.
    """
    monkeypatch.setattr(module, "BACKEND", "aot_eager")
    monkeypatch.setattr("headtohead.model.loss.LARGE_VOCABULARY", 1)
    messages: list[str] = []
    stack = compiled("two", messages)
    assert stack.choice.name == "compile"
    found = train(stack)
    assert not messages
    assert isinstance(stack.compiled, Compiled)
    assert len(stack.compiled.verified) == 1
    expected = train(training("two", precision="float64"))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_gradients_that_are_others_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that returns half of each gradient."""

    def halved(graph: Any, inputs: Any) -> Any:
        return lambda *given: [None if tensor is None else tensor / 2 for tensor in graph(*given)]

    monkeypatch.setattr(module, "BACKEND", halved)
    messages: list[str] = []
    found = train(compiled("plain", messages), 3)
    (message,) = messages
    assert "compile falls back to eager: gradients of member 0 differ by" in message
    expected = train(training("plain", precision="float64"), 3)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_training_continues_when_compilation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler was found")

    monkeypatch.setattr(module, "BACKEND", broken)
    messages: list[str] = []
    found = train(compiled("plain", messages), 3)
    (message,) = messages
    assert message.startswith("compile falls back to eager: BackendCompiler")
    assert "no C++ compiler was found" in message
    expected = train(training("plain", precision="float64"), 3)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.slow
def test_compiled_gradients_that_fail_later_are_replaced_by_eager_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKEND", counted := Counted(broken_from=3))
    messages: list[str] = []
    found = train(compiled("plain", messages), 6)
    assert messages == ["compile falls back to eager: RuntimeError: planted"]
    assert counted.calls == 3
    expected = train(training("plain", precision="float64"), 6)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def diverged(stack: StackTraining) -> StackTraining:
    """Set the weights of the second member to NaN."""
    with torch.no_grad():
        for parameter in stack.parameters:
            parameter[1] = torch.nan
    return stack


@pytest.mark.slow
def test_a_diverged_member_causes_no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKEND", counted := Counted())
    messages: list[str] = []
    found = train(diverged(compiled("plain", messages)), 4)
    assert not messages
    assert counted.calls == 4
    expected = train(diverged(training("plain", precision="float64")), 4)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10, equal_nan=True)


@pytest.mark.slow
def test_wrong_gradients_are_detected_beside_a_diverged_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKEND", Counted(wrong=2))
    messages: list[str] = []
    train(diverged(compiled("plain", messages)), 3)
    (message,) = messages
    assert "gradients of member 2 differ by" in message


@pytest.mark.slow
def test_compiled_code_runs_inside_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo skips compiled code under a dispatch mode and in all later calls."""
    monkeypatch.setattr(module, "BACKEND", counted := Counted())
    messages, captured = list[str](), list[int]()

    def capture(work: Any) -> Any:
        """Call the step as a CUDA capture does; its replay calls the step again."""
        before = counted.calls
        work()
        captured.append(counted.calls - before)
        return work

    with all_assumed():
        stack = compiled("plain", messages)
        assert stack.compiled is not None
        stack.backend = Graphs(stack.compiled.planned, capture, messages.append)
        monkeypatch.setitem(MIN_PLANNED_STEPS, "cuda-graphs", 1)
        found = train(stack, 6)
        expected = train(training("plain", precision="float64"), 6)
    assert not messages
    assert captured == [1]
    # Once each: the first step's verification, the capture, the step that verifies the graph and
    # its replay, and four replays.
    assert counted.calls == 8
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_compiled_stack_is_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKEND", Counted())
    gc.collect()
    gc.disable()
    try:
        stack = compiled("plain", [])
        train(stack, 3)
        memory = [weakref.ref(owner) for owner in (stack, stack.model, stack.parameters[0])]
        del stack
        assert [reference() for reference in memory] == [None, None, None]
    finally:
        gc.enable()
