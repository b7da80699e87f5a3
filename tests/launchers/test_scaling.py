"""The estimate of a large study: its arithmetic, its inputs, and its page."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HEAD = "variant,state,reused_from,system/train_seconds,system/wall_seconds\n"


@pytest.fixture(scope="module")
def scaling() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scaling", ROOT / "benchmarks" / "scaling.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["scaling"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("workers", "rounds"), [(1, 500), (8, 63), (64, 8), (500, 1), (1000, 1)])
def test_a_round_takes_the_time_of_one_stack(scaling: ModuleType, workers: int, rounds: int) -> None:
    assert scaling.estimate(10_000, 20, 97.0, workers, start=3.0) == rounds * 100.0


def test_runs_trained_together_count_as_one_stack(scaling: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text(
        HEAD
        + (
            "a,DONE,,10.5,12.0\na,DONE,,10.5,12.5\n"  # A stack of two runs.
            "a,DONE,,9.0,11.5\na,DONE,,9.0,11.0\n"  # Another stack of the same variant.
            "b,DONE,elsewhere/b,1.0,1.0\nc,FAILED,,1.0,1.0\n"
        )
    )
    found = scaling.from_results(tmp_path / "results.csv")
    assert (found.members, found.seconds) == (2, 12.0)


def test_an_unmeasured_gpu_has_no_estimate(scaling: ModuleType, tmp_path: Path) -> None:
    rows = list(scaling.table(scaling.from_gpu(tmp_path / "gpu.md", 1000), 10_000, [1, 64], 3.0))
    assert all(row.count("not measured") == 3 for row in rows[2:])
    # A row in the format of benchmarks/gpu.py.
    (tmp_path / "gpu.md").write_text("| quickstart | bfloat16 | 32 | 2.50 | 20.0 | 1.00 | 1.0% |\n")
    (row,) = list(scaling.table(scaling.from_gpu(tmp_path / "gpu.md", 1000), 640, [1, 20], 3.5))[2:]
    name = "quickstart, 1,000 steps, bfloat16"
    assert row == f"| {name} | one GPU | 32 | 2 | 2.0 min | 6 s |"


def test_the_page_has_the_table_of_the_committed_reports(scaling: ModuleType) -> None:
    measured = [*map(scaling.from_results, scaling.RESULTS), *scaling.from_gpu(scaling.GPU, 1000)]
    text = "\n".join(scaling.table(measured, 10_000, [1, 8, 64], 3.0))
    assert text in (ROOT / "docs" / "how-to" / "scale-out.md").read_text(encoding="utf-8")
