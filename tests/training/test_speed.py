"""Speed of stacks: two ratios with tolerance for a noisy machine."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stacks.py"


@pytest.mark.slow
def test_stacks_of_one_and_of_sixteen_runs_reach_the_recorded_speed():
    for _ in range(3):  # other processes can slow down one side of a ratio
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--check", "--rounds", "15"],
            text=True,
            capture_output=True,
            timeout=240,
            check=False,
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 runs, stacked / in sequence" in done.stdout
