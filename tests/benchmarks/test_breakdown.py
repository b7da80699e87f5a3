"""Breakdown of a training step: every operation counts for its kind, also in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from headtohead.model.dropout import Dropout, DropoutRNG
from headtohead.model.layers import StackedLinear

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def breakdown(benchmark: Callable[[str], ModuleType]) -> ModuleType:
    return benchmark("breakdown")


def test_a_gradient_counts_for_the_kind_of_its_operation(breakdown: ModuleType) -> None:
    rng = DropoutRNG([1], torch.device("cpu"))
    linear = StackedLinear([torch.Generator().manual_seed(1)], 4, [4], False, "xavier")
    dropout = Dropout(rng, 1, 0.5)
    operations = breakdown.Operations()
    with operations.recording_callers(), operations:
        # Dropout computes random numbers, which have no gradient, after the linear map.
        dropout(linear(torch.ones(1, 3, 4, requires_grad=True))).sum().backward()
    products = {kind for kind, name in operations.seconds if name == "bmm"}
    assert products == {breakdown.LINEAR}
    assert {kind for kind, name in operations.seconds if name == "mul"} == {breakdown.DROPOUT}


def test_the_shares_of_the_kinds_add_up_to_a_step(breakdown: ModuleType) -> None:
    with_dropout = breakdown.measure("notebook 1", 1, 2, 0.1)
    without = breakdown.measure("notebook 1", 1, 2, 0.0)
    assert all(with_dropout.kinds[kind] > 0 for kind in breakdown.KINDS)
    # Without dropout, the random stream is still set to the next step.
    assert without.kinds[breakdown.DROPOUT] < with_dropout.kinds[breakdown.DROPOUT] / 3
    assert with_dropout.operations > without.operations
    assert 0 < with_dropout.products < sum(with_dropout.kinds.values())
    lines = list(breakdown.table({"notebook 1, 1": with_dropout}))
    shares = [float(line.split("|")[2]) for line in lines[2 : 3 + len(breakdown.KINDS)]]
    assert sum(shares) == pytest.approx(100, abs=len(shares))
