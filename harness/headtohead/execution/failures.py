"""Messages about runs without a result: reason, log with the traceback, and next command.

Runs that are DONE or DIVERGED have a result. Runs that are FAILED, OOM or TIMEOUT are retrained only with
``--retry``; the same command resumes all others.
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
    """Yield a line for each distinct reason of failed runs, with the path of a log.

    Args:
        experiment: The experiment's folder.
        directories: Names of run directories in the folder.
    """
    logs = {
        member.directory: log
        for folder in stack_folders(experiment)
        if (log := folder.path / "worker.log").exists()
        for member in folder.record.members
    }
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
        location = ""
        if (state, reason) in log_of:
            location = f"; log with the traceback: {shown_path(log_of[state, reason])}"
        yield f"{count} {state}: {reason}{location}"


def next_step(counts: Mapping[str, int], command: str = "the same command") -> str:
    """Return advice how to continue; empty if all runs have results.

    Args:
        counts: Number of runs by state.
        command: Text that names the command to repeat.
    """
    steps = []
    if any(count for state, count in counts.items() if state not in states.FINAL):
        steps.append(f"{command} resumes")
    if any(counts.get(state) for state in states.RETRYABLE):
        steps.append(f"{command} with --retry retrains the failed runs")
    return ", and ".join(steps)
