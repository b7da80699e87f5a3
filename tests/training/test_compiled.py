"""Compiled gradients are the computed ones, or they are not taken."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from headtohead.training import compiled as program
from headtohead.training.compiled import Compiled
from headtohead.training.loop import StackTraining
from headtohead.training.program import PAYS

from .test_program import training

# What torch says of itself while it loads its compiler.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAYS, "compile", 1)


def train(stack: StackTraining, steps: int = 8) -> list[Tensor]:
    """Train on batches of one shape, so that one is compiled."""
    cuts = itertools.islice(stack._batches(), 200)
    first = next(cuts)
    alike = (cut for cut in cuts if cut.shape[:3] == first.shape[:3])
    for cut in [first, *itertools.islice(alike, steps - 1)]:
        stack._step(cut)
    return [one.detach().clone() for one in stack.model.parameters()]


def compiled(kind: str, said: list[str]) -> StackTraining:
    return training(kind, "compile", "float64", on_fall_back=said.append)


def test_a_compiled_training_is_the_computed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's backend that traces and differs only in not generating code.

    Generating takes a minute; ``benchmarks/compiled.py`` does, and holds it to the same.
    """
    monkeypatch.setattr(program, "BACKEND", "aot_eager")
    monkeypatch.setattr("headtohead.training.loop.LARGE_VOCABULARY", 1)
    said: list[str] = []
    stack = compiled("two", said)
    assert stack.choice.name == "compile"
    found = train(stack)
    assert not said
    assert isinstance(stack.gradients, Compiled)
    assert len(stack.gradients.compiled) == 1
    expected = train(training("two", precision="float64"))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_gradients_that_are_others_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backend that gives half of what it was asked for."""

    def halved(graph: Any, inputs: Any) -> Any:
        return lambda *given: [None if one is None else one / 2 for one in graph(*given)]

    monkeypatch.setattr(program, "BACKEND", halved)
    said: list[str] = []
    found = train(compiled("plain", said), 3)
    (why,) = said
    assert "torch.compile was given up, every step is computed: its gradients are" in why
    expected = train(training("plain", precision="float64"), 3)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_where_compiling_fails_the_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler was found")

    monkeypatch.setattr(program, "BACKEND", broken)
    said: list[str] = []
    found = train(compiled("plain", said), 3)
    (why,) = said
    assert why.startswith("torch.compile was given up, every step is computed: BackendCompiler")
    assert "no C++ compiler was found" in why
    expected = train(training("plain", precision="float64"), 3)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
