"""Messages of an experiment: its progress on a terminal or as plain lines, and the reasons of runs without a result.

Runs that are DONE or DIVERGED have a result. Runs that are FAILED, OOM or TIMEOUT are retrained only with
``--retry``; the same command resumes all others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from headtohead.errors import shown_path
from headtohead.escaping import single_line
from headtohead.storage import exits, states
from headtohead.storage.metrics import counted
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import StackFolder, stack_folders

LINE_SECONDS = 60.0
"""Time between the lines of a training whose output is no terminal."""


class Watcher:
    """Shows the training of stacks on standard error: a line for every stack that ends.

    On a terminal, a progress bar over the stacks is drawn below these lines; a stack in training counts by the part of
    its steps that is done. Else the step and the loss of the stacks in training are printed every minute. The first
    line is printed, and the bar started, at construction; `close` stops the bar.

    Args:
        folders: The stacks to train, which exist.
        allow_bar: Whether a bar may be drawn; without a terminal, there is none anyway.
    """

    def __init__(self, folders: Sequence[StackFolder], *, allow_bar: bool = True) -> None:
        self.folders = list(folders)
        self.total = len(folders)
        self.finished: set[str] = set()
        """Names of the stacks whose process has ended and is not started again."""
        self.started = time.monotonic()
        self.printed = self.started
        self.bar = None
        if allow_bar and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self.bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("", total=self.total)
            self.bar.start()
        self.print(f"training {_size(folders)}")

    def print(self, line: str) -> None:
        """Print a line to standard error."""
        if self.bar is None:
            print(single_line(line), file=sys.stderr, flush=True)
        else:
            self.bar.console.print(single_line(line), highlight=False, markup=False)

    def tick(self) -> None:
        """Show the current steps; called a few times per second.

        Without a bar, they are printed if `LINE_SECONDS` have passed since the last time. Folders that no longer exist
        are left out.
        """
        existing = []
        for folder in self.folders:
            if folder.exists:  # a halved stack has no folder
                existing.append(folder)
        training = [folder for folder in existing if folder.path.name not in self.finished]
        if self.bar is not None:
            self._update_bar(existing, training)
        elif time.monotonic() - self.printed >= LINE_SECONDS:
            self.printed = time.monotonic()
            self._print_steps(training)

    def _update_bar(self, existing: Sequence[StackFolder], training: Sequence[StackFolder]) -> None:
        """Draw how many stacks are done, with a part of each stack in training; its last 2 % are its scores."""
        assert self.bar is not None
        done = float(len(self.folders) - len(training))
        for folder in training:
            progress = folder.read_progress()
            if progress is not None:
                done += 0.98 * min(1.0, progress["step"] / max(1, progress["steps"]))
        description = f"{_size(existing)}{_losses(training)}"
        self.bar.update(self.task, completed=done, total=len(self.folders), description=description)

    def _print_steps(self, training: Sequence[StackFolder]) -> None:
        """Print the step and the loss of each stack in training."""
        seconds = time.monotonic() - self.started
        for folder in training:
            progress = folder.read_progress()
            if progress is not None and progress["step"] < progress["steps"]:
                steps = f"step {progress['step']:,} of {progress['steps']:,}"
                self.print(f"{folder.record.title}: {steps}{_losses([folder])} ({seconds:.0f} s)")

    def ended(self, folder: StackFolder, code: int) -> None:
        """Print a line about the end of the process of a stack."""
        if folder not in self.folders:  # a part of a split stack
            self.folders.append(folder)
        if code not in {exits.BUSY, exits.OOM}:
            self.finished.add(folder.path.name)
        number = f"[{min(len(self.finished), self.total)}/{self.total}]"
        seconds = time.monotonic() - self.started
        self.print(f"{number} {_describe_end(folder, code)} ({seconds:.0f} s)")
        self.tick()

    def close(self) -> None:
        """Stop drawing; the bar stays on the screen."""
        if self.bar is not None:
            self.bar.stop()


def _describe_end(folder: StackFolder, code: int) -> str:
    """Return a line about the end of a stack's process: what happens next, or its runs, notes and failures.

    Args:
        folder: The stack, which exists.
        code: The exit code of the process, one of `exits`, or negative for a signal.

    Raises:
        HeadToHeadError: If the record of the stack or of a run is missing or damaged.
    """
    record = folder.record
    if code == exits.BUSY:
        return f"{record.title}: waiting for another process that trains it"
    remaining = len(folder.open_runs())
    if code == exits.OOM and remaining == 1:
        number = record.num_microbatches
        return f"{record.title}: out of memory; retrying with {number} microbatches"
    if code == exits.OOM and remaining:
        return f"{record.title}: out of memory; its {remaining} runs start again in two stacks"
    statuses = [run.status for run in folder.runs()]
    done = sum(status.state == states.DONE for status in statuses)
    runs = "; ".join([f"{done} of {len(statuses)} runs done", *record.notes])
    if code == exits.OK and done == len(statuses):
        return f"{record.title}: {runs}{_losses([folder])}"
    reasons = set()
    for status in statuses:
        if status.state != states.DONE:
            reasons.add(f"{status.state} ({status.reason})")
    return f"{record.title}: {'; '.join([runs, *sorted(reasons)])}"


def _losses(folders: Sequence[StackFolder]) -> str:
    """Return the training losses of stacks at their last evaluations as ``, loss 2.1 to 3.4``.

    A single loss is ``, loss 2.1``. Stacks without a loss, without progress, or with a damaged file of it are left out;
    if none is left, the text is empty.
    """
    losses = []
    for folder in folders:
        progress = folder.read_progress()
        loss = progress.get("loss") if progress else None
        if loss is not None:
            losses.append(loss)
    if not losses:
        return ""
    lowest = f"{min(losses):.4g}"
    highest = f"{max(losses):.4g}"
    if lowest == highest:
        return f", loss {lowest}"
    return f", loss {lowest} to {highest}"


def _size(folders: Sequence[StackFolder]) -> str:
    """Return the number of runs and stacks."""
    runs = sum(len(folder.open_runs()) for folder in folders)
    return f"{counted(runs, 'run')} in {counted(len(folders), 'stack')}"


def failure_lines(experiment: Path, directories: Iterable[str]) -> Iterator[str]:
    """Yield a line for each distinct reason of an experiment's failed runs: their number, state, reason and a log.

    Runs in other states are left out, and so is the log if no stack of such a run has one. It is that of the first run.

    Args:
        experiment: The experiment's folder.
        directories: Names of run directories in it.

    Raises:
        HeadToHeadError: If a status or the record of a stack is damaged; while the iterator advances.
    """
    logs: dict[str, Path] = {}
    for folder in stack_folders(experiment):
        log = folder.path / "worker.log"
        if log.exists():
            logs |= {member.directory: log for member in folder.record.members}
    failed: dict[str, list[str]] = {}
    for name in directories:
        status = RunDirectory(experiment / name).status
        if status.state in states.FAILURES:
            reason = f"{status.state}: {status.reason or 'no reason was recorded'}"
            failed.setdefault(reason, []).append(name)
    for reason, names in failed.items():
        line = f"{len(names)} {reason}"
        with_log = [name for name in names if name in logs]
        if with_log:
            line += f"; log with the traceback: {shown_path(logs[with_log[0]])}"
        yield line


def next_step(counts: Mapping[str, int], command: str = "the same command") -> str:
    """Return advice how to continue with a command, from the runs by state; empty if all runs have results."""
    present = {state for state, count in counts.items() if count}
    steps = []
    if present - states.FINAL:
        steps.append(f"{command} resumes")
    if present & states.FAILURES:
        steps.append(f"{command} with --retry retrains the failed runs")
    return ", and ".join(steps)
