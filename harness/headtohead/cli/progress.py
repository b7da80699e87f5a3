"""Progress of an experiment: a progress bar on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from headtohead.cli.output import echo
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
    runs = f"{done} of {len(statuses)} runs done"
    runs = "; ".join([runs, *record.notes])
    if code == exits.OK and done == len(statuses):
        return f"{record.variant}: {runs}{losses([folder])}"
    if code == exits.BUSY:
        return f"{record.variant}: waiting for another process that trains it"
    left = len(folder.open_runs())
    if code == exits.OOM and left > 1:
        return f"{record.variant}: out of memory; its {left} runs continue in two stacks"
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
        """Print the numbers of runs and stacks."""
        self.folders = list(folders)
        self.total = len(folders)
        self.ends = 0
        self.started = self.printed = time.monotonic()
        echo(f"training {size(folders)}", err=True)

    def tick(self) -> None:
        """Print the progress of the stacks in training, at most once per ``LINE_SECONDS``."""
        now = time.monotonic()
        if now - self.printed < LINE_SECONDS:
            return
        self.printed = now
        for folder in self.folders:
            progress = folder.read_progress() if folder.exists else None
            if progress and progress["step"] < progress["steps"]:
                steps = f"step {progress['step']:,} of {progress['steps']:,}"
                echo(f"{folder.record.variant}: {steps}{losses([folder])} ({now - self.started:.0f} s)", err=True)

    def ended(self, folder: StackFolder, code: int) -> None:
        """Print how a stack ended."""
        if folder not in self.folders:  # a part of a split stack
            self.folders.append(folder)
        if code not in {exits.BUSY, exits.OOM}:
            self.ends += 1
        seconds = time.monotonic() - self.started
        line = f"[{min(self.ends, self.total)}/{self.total}] {describe_end(folder, code)}"
        echo(f"{line} ({seconds:.0f} s)", err=True)


class ProgressBarWatcher(Watcher):
    """Draws a progress bar over all steps, with an estimate of the remaining time."""

    def start(self, folders: Sequence[StackFolder]) -> None:
        """Show the bar."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.folders = list(folders)
        self.finished: set[str] = set()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=False,
        )
        self.task = self.bar.add_task(size(folders), total=len(folders))
        self.bar.start()

    def tick(self) -> None:
        """Update the bar from the progress files of the stacks."""
        done = 0.0
        for folder in self.folders:
            if folder.path.name in self.finished or not folder.path.exists():
                done += 1.0
            elif progress := folder.read_progress():
                done += 0.98 * min(1.0, progress["step"] / max(1, progress["steps"]))
        training = [folder for folder in self.folders if folder.path.name not in self.finished]
        self.bar.update(self.task, completed=done, description=f"{size(self.folders)}{losses(training)}")

    def ended(self, folder: StackFolder, code: int) -> None:
        """Print how a stack ended above the bar."""
        if folder not in self.folders:  # a part of a split stack
            self.folders.append(folder)
            self.bar.update(self.task, total=len(self.folders))
        if code not in {exits.BUSY, exits.OOM}:
            self.finished.add(folder.path.name)
        self.bar.console.print(single_line(describe_end(folder, code)), highlight=False, markup=False)
        self.tick()

    def close(self) -> None:
        """Stop drawing; the bar stays on the screen."""
        self.bar.stop()
