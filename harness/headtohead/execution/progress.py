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

    On a terminal, a progress bar over all steps is drawn below these lines; else the step and the loss of the stacks in
    training are printed every minute.
    """

    def __init__(self, folders: Sequence[StackFolder], *, has_bar: bool = True) -> None:
        self.folders, self.total = list(folders), len(folders)
        self.finished: set[str] = set()
        self.started = self.printed = time.monotonic()
        self.bar = None
        if has_bar and sys.stderr.isatty():
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
        """Show the current steps; called a few times per second."""
        existing = [
            folder for folder in self.folders if folder.exists
        ]  # a halved stack has no folder
        training = [folder for folder in existing if folder.path.name not in self.finished]
        now = time.monotonic()
        if self.bar is not None:
            done = float(len(self.folders) - len(training))
            for folder in training:
                if progress := folder.read_progress():
                    done += 0.98 * min(1.0, progress["step"] / max(1, progress["steps"]))
            description = f"{_size(existing)}{_losses(training)}"
            self.bar.update(
                self.task, completed=done, total=len(self.folders), description=description
            )
        elif now - self.printed >= LINE_SECONDS:
            self.printed = now
            for folder in training:
                progress = folder.read_progress()
                if progress and progress["step"] < progress["steps"]:
                    steps = f"step {progress['step']:,} of {progress['steps']:,}"
                    self.print(
                        f"{folder.record.title}: {steps}{_losses([folder])} ({now - self.started:.0f} s)"
                    )

    def ended(self, folder: StackFolder, code: int) -> None:
        """Print a line about the end of the process of a stack."""
        if folder not in self.folders:  # a part of a split stack
            self.folders.append(folder)
        if code not in {exits.BUSY, exits.OOM}:
            self.finished.add(folder.path.name)
        number = f"[{min(len(self.finished), self.total)}/{self.total}]"
        self.print(
            f"{number} {_describe_end(folder, code)} ({time.monotonic() - self.started:.0f} s)"
        )
        self.tick()

    def close(self) -> None:
        """Stop drawing; the bar stays on the screen."""
        if self.bar is not None:
            self.bar.stop()


def _describe_end(folder: StackFolder, code: int) -> str:
    """Return a line about the end of a stack: its runs, the worker's notes and the reasons of failures."""
    record = folder.record
    statuses = [run.status for run in folder.runs()]
    done = sum(status.state == states.DONE for status in statuses)
    runs = "; ".join([f"{done} of {len(statuses)} runs done", *record.notes])
    if code == exits.OK and done == len(statuses):
        return f"{record.title}: {runs}{_losses([folder])}"
    if code == exits.BUSY:
        return f"{record.title}: waiting for another process that trains it"
    if code == exits.OOM and (left := len(folder.open_runs())):
        parts = f"retrying with {record.num_microbatches} microbatches"
        return f"{record.title}: out of memory; {parts if left == 1 else f'its {left} runs start again in two stacks'}"
    others = sorted(
        {f"{status.state} ({status.reason})" for status in statuses if status.state != states.DONE}
    )
    return f"{record.title}: {'; '.join([runs, *others])}"


def _losses(folders: Sequence[StackFolder]) -> str:
    """Return the training losses of stacks at their last evaluations as ``, loss 2.1 to 3.4``, or an empty text."""
    progress = [folder.read_progress() for folder in folders]
    found = sorted(loss for stack in progress if stack and (loss := stack.get("loss")) is not None)
    ends = dict.fromkeys(f"{loss:.4g}" for loss in (found[0], found[-1])) if found else ()
    return f", loss {' to '.join(ends)}" if ends else ""


def _size(folders: Sequence[StackFolder]) -> str:
    runs = sum(len(folder.open_runs()) for folder in folders)
    return f"{counted(runs, 'run')} in {counted(len(folders), 'stack')}"


def failure_lines(experiment: Path, directories: Iterable[str]) -> Iterator[str]:
    """Yield a line for each distinct reason of an experiment's failed runs, with the path of a log."""
    logs = {
        member.directory: log
        for folder in stack_folders(experiment)
        if (log := folder.path / "worker.log").exists()
        for member in folder.record.members
    }
    failed: dict[str, list[str]] = {}
    for name in directories:
        status = RunDirectory(experiment / name).status
        if status.state in states.FAILURES:
            failed.setdefault(
                f"{status.state}: {status.reason or 'no reason was recorded'}", []
            ).append(name)
    for reason, names in failed.items():
        shown = next(
            (
                f"; log with the traceback: {shown_path(logs[name])}"
                for name in names
                if name in logs
            ),
            "",
        )
        yield f"{len(names)} {reason}{shown}"


def next_step(counts: Mapping[str, int], command: str = "the same command") -> str:
    """Return advice how to continue with a command, from the runs by state; empty if all runs have results."""
    found = {state for state, count in counts.items() if count}
    steps = [f"{command} resumes"] if found - states.FINAL else []
    return ", and ".join(
        steps + [f"{command} with --retry retrains the failed runs"] * bool(found & states.FAILURES)
    )
