"""The parts of a training step: each operation in the part it belongs to, backward ones too."""

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


def test_a_gradient_belongs_where_what_it_is_the_gradient_of_does(breakdown: ModuleType) -> None:
    stream = DropoutRNG([1], torch.device("cpu"))
    linear = StackedLinear([torch.Generator().manual_seed(1)], 4, [4], False, "xavier")
    dropout = Dropout(stream, 1, 0.5)
    operations = breakdown.Operations()
    with operations.named(), operations:
        # Dropout draws its numbers between the linear map and what has a gradient next.
        dropout(linear(torch.ones(1, 3, 4, requires_grad=True))).sum().backward()
    products = {kind for kind, name in operations.seconds if name == "bmm"}
    assert products == {breakdown.LINEAR}
    assert {kind for kind, name in operations.seconds if name == "mul"} == {breakdown.DROPOUT}


def test_a_step_is_shared_out_among_the_kinds(breakdown: ModuleType) -> None:
    with_dropout = breakdown.measured("notebook 1", 1, 2, 0.1)
    without = breakdown.measured("notebook 1", 1, 2, 0.0)
    assert all(with_dropout.kinds[kind] > 0 for kind in breakdown.KINDS)
    # A stream that nobody draws from is still told which step follows.
    assert without.kinds[breakdown.DROPOUT] < with_dropout.kinds[breakdown.DROPOUT] / 3
    assert with_dropout.operations > without.operations
    assert 0 < with_dropout.products < sum(with_dropout.kinds.values())
    lines = list(breakdown.table({"notebook 1, 1": with_dropout}))
    shares = [float(line.split("|")[2]) for line in lines[2 : 3 + len(breakdown.KINDS)]]
    assert sum(shares) == pytest.approx(100, abs=len(shares))
