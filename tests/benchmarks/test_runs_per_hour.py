"""The sides of the comparison of runs per hour train the same model and have equal losses."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.mark.slow
def test_a_stack_a_single_run_and_vmap_have_equal_losses(benchmark: Callable[[str], ModuleType]) -> None:
    options = Namespace(task="notebook-1", runs=2, steps=20, precision="float32")
    stack, alone, vmap = (loss for _, loss in benchmark("runs_per_hour").measure(options).values())
    assert alone == pytest.approx(stack, abs=1e-5)
    assert vmap == pytest.approx(stack, abs=1e-5)
