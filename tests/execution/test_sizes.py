"""Stack sizes are benchmarked once, in a separate process, and cached."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

from headtohead import files
from headtohead.api import plan
from headtohead.execution import stack_sizes
from headtohead.planning.stacking import load_stack_sizes, machine_name, processors
from headtohead.plugins import registry
from headtohead.training import sizing
from headtohead.training.backends import Graphs
from headtohead.training.loop import StackTraining, planned_shapes
from headtohead.training.sizing import best_stack_size, step_seconds, time_sizes

if TYPE_CHECKING:
    from .conftest import Study


def test_a_stack_size_is_measured_once_and_used_by_the_plan(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2H_CACHE", str(study.cache / "own"))
    small = {"model": {"d_model": 4, "d_ff": 8}, "train": {"batch_tokens": 32}}
    study.write(base=small, seeds=processors("cpu") + 2)
    found = plan(study.file, runs=study.runs)
    monkeypatch.setattr(stack_sizes, "MIN_SECONDS", 1e9)
    assert stack_sizes.stack_sizes(found, found.runs, "cpu", study.cache / "own") == {}
    monkeypatch.setattr(stack_sizes, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(stack_sizes, "BENCHMARK_FRACTION", 1e3)
    measured = stack_sizes.stack_sizes(found, found.runs, "cpu", study.cache / "own")
    (members,) = measured.values()
    assert members in {8, 16, 32, 64}, "as many as pay, not as many as this study has"
    assert load_stack_sizes(study.cache / "own", "cpu") == measured
    path = study.cache / "own" / "stack-sizes.json"
    files.write_json(path, {machine_name("cpu"): dict.fromkeys(measured, 3)})
    assert set(stack_sizes.stack_sizes(found, found.runs, "cpu", study.cache / "own").values()) == {3}
    assert max(len(stack) for stack in found.stacks) <= 3


def test_time_per_member_falls_with_the_stack_size_if_overhead_dominates(study: Study) -> None:
    study.write(base={"model": {"d_model": 4, "d_ff": 8}, "train": {"batch_tokens": 32}})
    found = plan(study.file, runs=study.runs)
    variant = found.variants[0]
    timed = time_sizes(variant.config, found.data_of(found.runs_of(variant.slug)[0]), torch.device("cpu"), 8, 60.0)
    assert list(timed) == [1, 2, 4, 8]
    assert timed[8] < 0.6 * timed[1]
    assert best_stack_size(timed) > 1


def test_the_search_ends_at_its_time_limit(study: Study) -> None:
    found = plan(study.file, runs=study.runs)
    variant = found.variants[0]
    assert list(time_sizes(variant.config, found.data, torch.device("cpu"), 64, 0.0)) == [1]


def test_a_size_is_freed_before_the_next_one_is_built(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector: on a GPU, models that stay allocated leave no memory for larger sizes."""
    built: list[weakref.ref[StackTraining]] = []

    class Watched(StackTraining):
        def __init__(self, *given: Any, **named: Any) -> None:
            assert [reference() for reference in built] == [None] * len(built)
            super().__init__(*given, **named)
            built.append(weakref.ref(self))

    monkeypatch.setattr(sizing, "StackTraining", Watched)
    study.write(base={"model": {"d_model": 4, "d_ff": 8}, "train": {"batch_tokens": 32}})
    found = plan(study.file, runs=study.runs)
    variant = found.variants[0]
    gc.collect()
    gc.disable()
    try:
        time_sizes(variant.config, found.data_of(found.runs_of(variant.slug)[0]), torch.device("cpu"), 2, 60.0)
        assert [reference() for reference in built] == [None, None]
    finally:
        gc.enable()


def test_replays_are_timed_and_captures_are_excluded(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    found = plan(study.file, runs=study.runs)
    variant = found.variants[0]
    stack = StackTraining(variant.config, [1], found.data_of(found.runs_of(variant.slug)[0]), torch.device("cpu"))
    events: list[str] = []

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        events.append("capture")

        def replay() -> None:
            events.append("replay")
            work()

        return replay

    def clock() -> float:
        events.append("clock")
        return float(len(events))

    often = dict.fromkeys(planned_shapes(stack.plan, 1), 10**6)
    stack.backend = Graphs(often, capture, events.append)
    monkeypatch.setattr(sizing, "_clock", lambda device: clock)
    # A step is captured and another step is verified before the clock is first read.
    assert step_seconds(stack) == 2.0
    assert events == ["capture", "replay", *["clock", "replay", "clock"] * sizing.STEPS]


BROKEN = """
import headtohead as h2h

class Broken(h2h.Positional):
    def rotate(self, x, positions, role):
        if x.requires_grad:
            raise RuntimeError("the tensors do not fit\\n  at a line of its own")
        return x

@h2h.hookimpl
def register_positionals():
    return {"broken": Broken}
"""

KILLED = BROKEN.replace("raise RuntimeError", "__import__('signal').raise_signal(9)  #")


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [(BROKEN, "RuntimeError: the tensors do not fit at a line of its own"), (KILLED, "its process ended with SIGKILL")],
)
def test_a_benchmark_that_fails_is_logged_with_its_reason(
    study: Study, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, plugin: str, reason: str
) -> None:
    path = study.folder / "mine.py"
    path.write_text(plugin)
    monkeypatch.setattr(registry, "_current", None)
    registry.use_files([path])
    study.write(baseline={"positional": "broken"}, seeds=processors("cpu") + 2)
    found = plan(study.file, runs=study.runs)
    monkeypatch.setattr(stack_sizes, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(stack_sizes, "BENCHMARK_FRACTION", 1e3)
    assert stack_sizes.stack_sizes(found, found.runs, "cpu", study.folder / "cache") == {}
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert line == f"stack size of baseline is estimated: its benchmark failed ({reason})"


@pytest.mark.parametrize(("fits", "sizes_timed"), [(1, [1]), (2, [1, 2]), (0, [])])
def test_a_size_that_exceeds_the_memory_ends_the_search(
    study: Study, monkeypatch: pytest.MonkeyPatch, fits: int, sizes_timed: list[int]
) -> None:
    step = StackTraining._step

    def limited(self: StackTraining, *arguments: object) -> None:
        if self.model.members > fits:
            raise RuntimeError("CUDA error: out of memory")
        step(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(StackTraining, "_step", limited)
    found = plan(study.file, runs=study.runs)
    variant = found.variants[0]
    timed = time_sizes(variant.config, found.data, torch.device("cpu"), 4, 60.0)
    assert list(timed) == sizes_timed
    assert 1 <= best_stack_size(timed) <= max(fits, 1)


def test_other_errors_in_a_benchmark_are_raised(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: StackTraining, *arguments: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(StackTraining, "_step", broken)
    found = plan(study.file, runs=study.runs)
    with pytest.raises(RuntimeError, match="device-side assert"):
        time_sizes(found.variants[0].config, found.data, torch.device("cpu"), 4, 60.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_nothing_is_measured_for_gpus_of_other_machines(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_sizes, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(stack_sizes, "_measure", lambda *given: pytest.fail("measured"))
    found = plan(study.file, runs=study.runs)
    assert stack_sizes.stack_sizes(found, found.runs, "cuda", study.cache) == {}
    assert load_stack_sizes(study.cache, "cuda") == {}
