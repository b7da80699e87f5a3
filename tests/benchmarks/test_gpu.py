"""The benchmark of a GPU runs on a CPU, with the layout of CUDA."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

CPU = torch.device("cpu")


@pytest.mark.slow
def test_the_correctness_part_finds_no_fault_and_finds_a_planted_one(
    benchmark: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = benchmark("gpu")
    checks = list(gpu.report(CPU, [1], ("eager",)))
    assert sum(line.startswith("- ") for line in checks) == 24
    assert not any("WRONG" in line for line in checks)
    plain = gpu.trained

    def faulty(size: Any, device: Any, overrides: list[dict[str, Any]], train: Any, *log: Any) -> Any:
        """Train the other side with another learning rate."""
        wrong = [{**own, "train": {**own.get("train", {}), "lr": 3e-3}} for own in overrides]
        return plain(size, device, wrong if log else overrides, train, *log)

    monkeypatch.setattr(gpu, "trained", faulty)
    steps = [line for line in gpu.steps(CPU, ("eager",)) if "float64" in line]
    assert steps
    assert all("WRONG" in line for line in steps)
