"""The soak test, the comparison of runs per hour, speed ratios, and the benchmark of a GPU on a CPU."""

import subprocess
import sys
from argparse import Namespace

import pytest
import torch

pytestmark = pytest.mark.slow


@pytest.mark.timeout(900)
def test_kills_lose_nothing(benchmark, tmp_path, capsys):
    page = tmp_path / "soak.md"
    options = [
        "--kills",
        "2",
        "--seed",
        "3",
        "--folder",
        str(tmp_path / "studies"),
        "--write",
        str(page),
    ]
    assert benchmark("soak").main(options) == 0, capsys.readouterr().out
    assert "| any of these | 2 | 1 | 0 | 0 | 0 |" in page.read_text()


def test_a_stack_a_single_run_and_vmap_have_equal_losses(benchmark):
    options = Namespace(task="notebook-1", runs=2, steps=20, precision="float32", device="cpu")
    stack, alone, vmap = (loss for _, loss in benchmark("runs_per_hour").measure(options).values())
    assert alone == pytest.approx(stack, abs=1e-5)
    assert vmap == pytest.approx(stack, abs=1e-5)


def test_stacks_of_one_and_of_sixteen_runs_reach_the_recorded_speed(benchmark):
    command = [sys.executable, benchmark("stacks").__file__, "--check", "--rounds", "15"]
    assert any(subprocess.run(command, timeout=240, check=False).returncode == 0 for _ in range(3))


def test_the_correctness_part_finds_no_fault_and_finds_a_planted_one(benchmark, monkeypatch):
    gpu, cpu = benchmark("gpu"), torch.device("cpu")
    monkeypatch.setattr(
        gpu, "STACKS", {name: gpu.STACKS[name] for name in ("with dropout", "tied")}
    )
    checks = list(gpu.report(cpu, [1], ("eager",)))
    assert sum(line.startswith("- ") for line in checks) == 11
    assert not any("WRONG" in line for line in checks)
    plain = gpu.trained

    def faulty(size, device, overrides, train, *log):
        """Train the other side with another learning rate."""
        wrong = [{**own, "train": {**own.get("train", {}), "lr": 3e-3}} for own in overrides]
        return plain(size, device, wrong if log else overrides, train, *log)

    monkeypatch.setattr(gpu, "trained", faulty)
    monkeypatch.setattr(gpu, "PRECISIONS", {"float64": gpu.PRECISIONS["float64"]})
    steps = list(gpu.steps(cpu, ("eager",)))
    assert all("WRONG" in line for line in steps)
    own, tiny = {"attention": "gated"}, gpu.tiny_training
    assert gpu.entry("cpu", "decoder-only", own) == ([], 1, 0)
    monkeypatch.setattr(
        gpu,
        "tiny_training",
        lambda *now: tiny(*now[:2], now[2] and {**now[2], "lr": 3e-3}, *now[3:]),
    )
    assert "WRONG" in gpu.entry("cpu", "decoder-only", own)[0][0]
