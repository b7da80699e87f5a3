"""What to tell the user about runs that have no result: why, where the traceback is, what to type.

A result here is DONE or DIVERGED. Runs that are FAILED, OOM or TIMEOUT are trained again only with
``--retry``; the same command goes on with all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from headtohead.errors import shown_path
from headtohead.storage import states
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import stack_folders


def failure_lines(experiment: Path, directories: Iterable[str]) -> Iterator[str]:
    """Yield a line for each reason why runs of an experiment's folder failed, and its log.

    Args:
        experiment: The experiment's folder.
        directories: Names of run directories in it.
    """
    logs = _logs(experiment)
    reasons: Counter[tuple[str, str]] = Counter()
    log_of: dict[tuple[str, str], Path] = {}
    for name in directories:
        status = RunDirectory(experiment / name).status
        if status.state in states.RETRYABLE:
            group = status.state, status.reason or "no reason was recorded"
            reasons[group] += 1
            if name in logs:
                log_of.setdefault(group, logs[name])
    for (state, reason), count in reasons.items():
        log = log_of.get((state, reason))
        where = f"; log with the traceback: {shown_path(log)}" if log else ""
        yield f"{count} {state}: {reason}{where}"


def next_step(found: Mapping[str, int], same: str = "the same command") -> str:
    """Return how to go on with runs in these states.

    Args:
        found: Number of runs by state.
        same: What the command to type is called.
    """
    steps = []
    if any(count for state, count in found.items() if state not in states.FINAL):
        steps.append(f"{same} goes on")
    if any(found.get(state) for state in states.RETRYABLE):
        steps.append(f"{same} with --retry trains the failed runs again")
    return ", and ".join(steps)


def _logs(experiment: Path) -> dict[str, Path]:
    """Return the log of the worker that trained each run, by the run's directory."""
    return {
        member.directory: folder.path / "worker.log"
        for folder in stack_folders(experiment)
        if (folder.path / "worker.log").exists()
        for member in folder.record.members
    }
