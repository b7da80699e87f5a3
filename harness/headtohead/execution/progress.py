"""Progress of an experiment: a progress bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from headtohead.escaping import single_line
from headtohead.execution.scheduler import Watcher
from headtohead.storage import exits, states
from headtohead.storage.stack import StackFolder

LINE_SECONDS = 60.0
"""Time between the lines of a training whose output is no terminal."""


def make_watcher() -> Watcher:
    """Return the watcher for standard error: a progress bar on a terminal, else lines."""
    return ProgressBarWatcher() if sys.stderr.isatty() else LineWatcher()


def describe_end(folder: StackFolder, code: int) -> str:
    """Return a line about the end of a stack: its runs, the worker's notes and the reasons of failures."""
    record = folder.record
    statuses = [run.status for run in folder.runs()]
    done = sum(status.state == states.DONE for status in statuses)
    runs = "; ".join([f"{done} of {len(statuses)} runs done", *record.notes])
    if code == exits.OK and done == len(statuses):
        return f"{record.variant}: {runs}{losses([folder])}"
    if code == exits.BUSY:
        return f"{record.variant}: waiting for another process that trains it"
    left = len(folder.open_runs())
    if code == exits.OOM and left > 1:
        return f"{record.variant}: out of memory; its {left} runs start again in two stacks"
    if code == exits.OOM and left == 1:
        return f"{record.variant}: out of memory; retrying with {record.num_microbatches} micro-batches"
    others = sorted({f"{status.state} ({status.reason})" for status in statuses if status.state != states.DONE})
    return f"{record.variant}: {runs}; {'; '.join(others)}"


def losses(folders: Sequence[StackFolder]) -> str:
    """Return the training losses of stacks at their last evaluations as ``, loss 2.1 to 3.4``, or an empty text."""
    progress = [folder.read_progress() for folder in folders]
    found = sorted(loss for stack in progress if stack and (loss := stack.get("loss")) is not None)
    ends = dict.fromkeys(f"{loss:.4g}" for loss in (found[0], found[-1])) if found else ()
    return f", loss {' to '.join(ends)}" if ends else ""


def size(folders: Sequence[StackFolder]) -> str:
    """Return the numbers of runs without a result and of stacks as text."""
    runs = sum(len(folder.open_runs()) for folder in folders)
    return f"{runs} run{'s' * (runs != 1)} in {len(folders)} stack{'s' * (len(folders) != 1)}"


class LineWatcher(Watcher):
    """Prints a line for every stack that ends, and every minute the step and the loss of the stacks in training."""

    def start(self, folders: Sequence[StackFolder]) -> None:
        self.folders, self.total = list(folders), len(folders)
        self.finished: set[str] = set()
        self.started = self.printed = time.monotonic()
        self.print(f"training {size(folders)}")

    def print(self, line: str) -> None:
        """Print a line to standard error."""
        print(single_line(line), file=sys.stderr, flush=True)

    def tick(self) -> None:
        now = time.monotonic()
        if now - self.printed < LINE_SECONDS:
            return
        self.printed = now
        for folder in self.folders:
            progress = folder.read_progress() if folder.exists else None
            if progress and progress["step"] < progress["steps"]:
                steps = f"step {progress['step']:,} of {progress['steps']:,}"
                self.print(f"{folder.record.variant}: {steps}{losses([folder])} ({now - self.started:.0f} s)")

    def ended(self, folder: StackFolder, code: int) -> None:
        if folder not in self.folders:  # a part of a split stack
            self.folders.append(folder)
        if code not in {exits.BUSY, exits.OOM}:
            self.finished.add(folder.path.name)
        number = f"[{min(len(self.finished), self.total)}/{self.total}]"
        self.print(f"{number} {describe_end(folder, code)} ({time.monotonic() - self.started:.0f} s)")


class ProgressBarWatcher(LineWatcher):
    """Draws a progress bar over all steps, with an estimate of the remaining time, below the lines of ended stacks."""

    def start(self, folders: Sequence[StackFolder]) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self.bar = Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
        self.task = self.bar.add_task("", total=len(folders))
        self.bar.start()
        super().start(folders)

    def print(self, line: str) -> None:
        self.bar.console.print(single_line(line), highlight=False, markup=False)

    def tick(self) -> None:
        done = 0.0
        for folder in self.folders:
            if folder.path.name in self.finished or not folder.path.exists():
                done += 1.0
            elif progress := folder.read_progress():
                done += 0.98 * min(1.0, progress["step"] / max(1, progress["steps"]))
        existing = [folder for folder in self.folders if folder.exists]  # a halved stack has no folder
        training = [folder for folder in existing if folder.path.name not in self.finished]
        description = f"{size(existing)}{losses(training)}"
        self.bar.update(self.task, completed=done, total=len(self.folders), description=description)

    def ended(self, folder: StackFolder, code: int) -> None:
        super().ended(folder, code)
        self.tick()

    def close(self) -> None:
        """Stop drawing; the bar stays on the screen."""
        self.bar.stop()
