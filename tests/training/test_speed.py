"""Speed of stacks: two ratios with tolerance for a noisy machine."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "stacks.py"


@pytest.mark.slow
def test_a_stack_of_one_costs_what_plain_modules_cost_and_sixteen_bring_what_they_did():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check", "--rounds", "15"],
        text=True,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 runs, stacked / one by one" in done.stdout
