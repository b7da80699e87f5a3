"""The benchmark of a GPU runs on a CPU, with the layout of CUDA."""

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
    monkeypatch.setattr(gpu, "STACKS", {name: gpu.STACKS[name] for name in ("with dropout", "tied")})
    checks = list(gpu.report(CPU, [1], ("eager",)))
    assert sum(line.startswith("- ") for line in checks) == 12
    assert not any("WRONG" in line for line in checks)
    plain = gpu.trained

    def faulty(size: Any, device: Any, overrides: list[dict[str, Any]], train: Any, *log: Any) -> Any:
        """Train the other side with another learning rate."""
        wrong = [{**own, "train": {**own.get("train", {}), "lr": 3e-3}} for own in overrides]
        return plain(size, device, wrong if log else overrides, train, *log)

    monkeypatch.setattr(gpu, "trained", faulty)
    monkeypatch.setattr(gpu, "PRECISIONS", {"float64": gpu.PRECISIONS["float64"]})
    steps = list(gpu.steps(CPU, ("eager",)))
    assert len(steps) == 4
    assert all("WRONG" in line for line in steps)
