"""Stacks against separate processes: stack sizes are those of ``h2h run``, and turns count runs × steps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def processes(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("processes")


@pytest.mark.slow
def test_stack_sizes_are_those_of_h2h_run(processes: ModuleType, tmp_path: Path) -> None:
    plan = processes.make_study_plan(processes.SIZES["quickstart"], 8, None, tmp_path)
    assert len(plan.runs) == 8
    assert processes.arranged_sizes(plan, 2, None) == (4, 4)
    assert processes.arranged_sizes(plan, 2, 2) == (2, 2, 2, 2)
    assert processes.format_sizes((4, 4)) == "2 × 4"
    assert processes.format_sizes((3, 3, 2)) == "2 × 3 + 1 × 2"


def test_a_turn_counts_runs_and_steps_of_every_process(processes: ModuleType) -> None:
    turn = processes.Turn(done=(40, 20), walls=(2.0, 4.0), processor=5.0)
    assert turn.rate == 25.0
    assert turn.processor_rate == 12.0
    assert turn.seconds == 4.0


def test_each_round_starts_with_another_side(processes: ModuleType) -> None:
    started: list[str] = []

    class Recorded:
        def __init__(self, name: str) -> None:
            self.name = name

        def turn(self, steps: int) -> str:
            started.append(self.name)
            return self.name

    sides = [Recorded(name) for name in "abc"]
    rounds = [processes.take_turns(sides, 1, number) for number in range(3)]
    assert rounds == [["a", "b", "c"]] * 3
    assert started == list("abcbcacab")


@pytest.mark.slow
def test_the_sides_train_and_are_compared(processes: ModuleType, tmp_path: Path) -> None:
    plan = processes.make_study_plan(processes.SIZES["quickstart"], 4, None, tmp_path)
    config = plan.by_slug[plan.runs[0].variant].config
    with processes.side(config, (2, 1), 1) as two:
        turn = two.turn(5)
    assert turn.done == (10, 5)
    assert turn.processor > 0
    options = argparse.Namespace(seconds=0.02, rounds=2)
    row = processes.row("quickstart | 2 × 2", (2, 2), config, 2, options)
    cells = row.strip("| ").split(" | ")
    assert len(cells) == 6
    ratio = float(cells[3].split()[0])
    assert 0.3 < ratio < 10
