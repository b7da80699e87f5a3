"""A tiny study with two stacks, and its results without a cluster."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import stack_folders
from made.study import TINY, Completed, Study

# Long enough after the first evaluation that a test can kill a worker that still trains.
TRAIN = TINY["base"]["train"] | {"steps": 600, "evaluate_every": 40, "checkpoint_seconds": 0.1}
TWO_STACKS = TINY | {
    "base": TINY["base"] | {"train": TRAIN},
    "design": [{"one_at_a_time": {"model.d_ff": [20]}}],
}


@dataclass(frozen=True)
class ClusterStudy(Study):
    """A study of which a cluster trains every stack."""

    content: Any = field(default_factory=lambda: TWO_STACKS)

    def holders_of_stacks(self) -> dict[str, int]:
        """Return by stack the process that holds the leases of its runs."""
        held = self.holders()
        last = {
            folder.path.name: folder.runs()[-1].path.name
            for folder in stack_folders(self.experiment)
        }
        return {stack: held[run] for stack, run in last.items() if run in held}

    def begun(self) -> set[str]:
        """Return the stacks that were evaluated and have a later resume point."""
        found = set()
        for folder in stack_folders(self.experiment):
            metrics = folder.runs()[-1].path / "metrics.jsonl"
            with suppress(FileNotFoundError, IndexError):
                if (
                    folder.resume_points.newest_first()[0].path.stat().st_mtime_ns
                    > metrics.stat().st_mtime_ns
                ):
                    found.add(folder.path.name)
        return found

    def began_anew(self) -> list[str]:
        """Return the runs that were trained again from their start: the first evaluation occurs twice."""
        found = []
        for path in self.experiment.glob("*/metrics.jsonl"):
            lines = [line for line in RunDirectory(path.parent).history() if line is not None]
            steps = [
                line.step
                for line in lines
                if not any(name.startswith("test/") for name in line.values)
            ]
            if steps.count(min(steps)) > 1:
                found.append(path.parent.name)
        return found

    def started(self, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """Start the command as a process that writes no report, and end it after the block."""
        return super().started("--no-report", *arguments)


@pytest.fixture
def study(
    tmp_path: Path, cache: Path, h2h_here: Callable[..., Completed]
) -> Iterator[ClusterStudy]:
    made = ClusterStudy(tmp_path, cache, h2h_here)
    made.write()
    yield made
    made.end()


@pytest.fixture(scope="session")
def here(
    once: Callable[..., Path], cache: Path, h2h_here: Callable[..., Completed]
) -> ClusterStudy:
    """The study by the local launcher, undisturbed."""

    def train(folder: Path) -> None:
        made = ClusterStudy(folder, cache, h2h_here)
        made.write()
        made.run("--no-report", "--workers", "2")
        assert set(made.states().values()) == {"DONE"}

    return ClusterStudy(once("here", train), cache, h2h_here)
