"""Messages of an experiment: its progress on a terminal or as plain lines, and the reasons of runs without a result.

Runs that are DONE or DIVERGED have a result. Runs that are FAILED, OOM or TIMEOUT are retrained only with
``--retry``; the same command resumes all others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

from headtohead.errors import HeadToHeadError, shown_path
from headtohead.escaping import single_line
from headtohead.storage import exits, states
from headtohead.storage.metrics import counted
from headtohead.storage.run_directory import RunDirectory
from headtohead.storage.stack import StackFolder, StackProgress, stack_folders
from headtohead_judge.colours import coloured
from headtohead_judge.output import echo

LINE_SECONDS = 60.0
"""Time between the lines of a training whose output is no terminal."""

LINE_WIDTH = 80
"""Maximum width of a line whose title can be shortened to fit."""

MIN_TITLE = 24
"""Minimum width of the title of a stack or a run in a line; with long texts, a line is wider than LINE_WIDTH."""

POLL_SECONDS = 1.0
"""Time between two looks for runs that have ended while their stack is still in training."""

ENDED_EARLY = states.FAILURES | {states.DIVERGED}
"""States of runs that are printed while their stack goes on."""


class Watcher:
    """Shows the training of stacks on standard error: a line for every stack that ends, and for every run that diverges
    or fails before.

    On a terminal, a progress bar over the stacks is drawn below these lines; a stack in training counts by the part of
    its steps that is done. Else the step and the loss of the stacks in training are printed every minute. The first
    line is printed, and the bar started, at construction; `close` stops the bar.

    Args:
        folders: The stacks to train, which exist.
        allow_bar: Whether a bar may be drawn; without a terminal, there is none anyway.
        expected: The estimated time for the first line, as ``h2h plan`` prints it; empty without one.
    """

    def __init__(
        self, folders: Sequence[StackFolder], *, allow_bar: bool = True, expected: str = ""
    ) -> None:
        self.folders = list(folders)
        self.total = len(folders)
        self.finished: set[str] = set()
        """Names of the stacks whose process has ended and is not started again."""
        self.started = time.monotonic()
        self.printed_at = self.started
        self.polled_at = self.started
        self.announced: set[str] = set()
        """Directories of the runs whose failure or divergence was printed."""
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
        line = f"training {_size(_statuses(folders))}"
        self.print(f"{line}; {expected}" if expected else line)

    def print(self, line: str) -> None:
        """Print a line to standard error, above the bar."""
        if self.bar is None:
            echo(line, err=True)
        else:
            from rich.text import Text

            self.bar.console.print(Text.from_ansi(coloured(single_line(line))))

    def tick(self) -> None:
        """Print the runs that have diverged or failed, and show the current steps; called a few times per second.

        Runs that have diverged or failed since the last call are printed at most every `POLL_SECONDS`. The steps of the
        stacks in training are drawn in the bar or, without one, printed every `LINE_SECONDS`. A stack without a
        readable record, such as one that was halved, counts as done in the bar and is not printed.
        """
        now = time.monotonic()
        if now - self.polled_at >= POLL_SECONDS:
            self.polled_at = now
            for folder in self.folders:
                if folder.path.name not in self.finished:
                    self._announce_early_ends(folder)
        if self.bar is not None:
            self._update_bar()
        elif now - self.printed_at >= LINE_SECONDS:
            self.printed_at = now
            self._print_steps(now - self.started)

    def _update_bar(self) -> None:
        """Draw how many stacks are done; the steps of a stack in training count 98 % of it, its scoring the rest."""
        assert self.bar is not None
        statuses = _statuses(self.folders)
        training = []
        for status in statuses:
            if status.folder.path.name not in self.finished:
                training.append(status)
        done = float(len(self.folders) - len(training))
        for status in training:
            progress = status.progress
            if progress is not None:
                done += 0.98 * min(1.0, progress["step"] / max(1, progress["steps"]))
        description = f"{_size(statuses)}{_losses([status.progress for status in training])}"
        self.bar.update(self.task, completed=done, total=len(self.folders), description=description)

    def _announce_early_ends(self, folder: StackFolder) -> None:
        """Print the runs of a stack in training that have diverged or failed since the last call, by their reason.

        Nothing if a record of the stack or of its runs cannot be read.
        """
        if folder.read_progress() is None:  # not started
            return
        seeds_by_end: dict[tuple[str, str, str], list[str]] = {}
        with suppress(HeadToHeadError):  # split, archived or damaged
            for member, run in zip(folder.record.members, folder.runs(), strict=True):
                status = run.status
                if member.directory in self.announced or status.state not in ENDED_EARLY:
                    continue
                self.announced.add(member.directory)
                title = _variant_title(run, member.variant)
                end = (status.state, title, status.reason or "no reason was recorded")
                seeds_by_end.setdefault(end, []).append(str(member.seed))
        for (state, title, reason), seeds in seeds_by_end.items():
            noun = "seed" if len(seeds) == 1 else "seeds"
            self.print(f"{state}: {title}, {noun} {', '.join(seeds)}: {reason}")

    def _print_steps(self, seconds: float) -> None:
        """Print the step and the loss of each stack in training, and the seconds since the start.

        Stacks that have not begun, and those whose steps are done but not yet scored, are left out.
        """
        for status in _statuses(self.folders):
            progress = status.progress
            if progress is None or status.folder.path.name in self.finished:
                continue
            if progress["step"] < progress["steps"]:
                steps = f"step {progress['step']:,} of {progress['steps']:,}"
                text = f"{steps}{_losses([progress])} ({seconds:.0f} s)"
                self.print(self._line("", status.folder, text))

    def ended(self, folder: StackFolder, code: int) -> None:
        """Print a line about the end of the process of a stack, and show the current steps.

        A stack counts as done, unless the code is BUSY or OOM, after which its runs are trained further.

        Raises:
            HeadToHeadError: If the record of the stack or of a run is missing or damaged.
        """
        if folder not in self.folders:  # a part of a split stack
            self.folders.append(folder)
        if code not in {exits.BUSY, exits.OOM}:
            self.finished.add(folder.path.name)
        number = f"[{min(len(self.finished), self.total)}/{self.total}]"
        seconds = time.monotonic() - self.started
        text = f"{_describe_end(folder, code)} ({seconds:.0f} s)"
        self.print(self._line(f"{number} ", folder, text))
        self.tick()

    def _line(self, start: str, folder: StackFolder, text: str) -> str:
        """Return ``start``, the title of a stack and a text as a line of at most LINE_WIDTH characters, if it can fit.

        The title is that of the first variant and the number of others. It is shortened to MIN_TITLE characters or
        more; the phrases that all stacks share are omitted first.

        Raises:
            HeadToHeadError: If the record of the stack is missing or damaged.
        """
        first = _first_title(folder)
        others = folder.record.title_with("")
        room = LINE_WIDTH - len(start) - len(others) - len(": ") - len(text)
        if len(first) > room:
            first = fitting_title(first, max(room, MIN_TITLE - len(others)), self._shared_phrases)
        return f"{start}{first}{others}: {text}"

    @cached_property
    def _shared_phrases(self) -> frozenset[str]:
        """The phrases that the titles of all stacks share, which titles in long lines omit."""
        return _shared_phrases(self.folders)

    def close(self) -> None:
        """Stop drawing; the bar stays on the screen."""
        if self.bar is not None:
            self.bar.stop()


class _StackStatus(NamedTuple):
    """What the display shows of a stack.

    Attributes:
        folder: Its folder.
        open_runs: The number of its runs without a final state.
        progress: Its progress; None before the first step.
    """

    folder: StackFolder
    open_runs: int
    progress: StackProgress | None


def _statuses(folders: Iterable[StackFolder]) -> list[_StackStatus]:
    """Return the status of each stack, except stacks with damaged or no records: a display never ends a study."""
    statuses = []
    for folder in folders:
        try:
            open_runs = len(folder.open_runs())
        except HeadToHeadError:
            continue
        statuses.append(_StackStatus(folder, open_runs, folder.read_progress()))
    return statuses


def _variant_title(run: RunDirectory, slug: str) -> str:
    """Return what people call the variant of a run; the slug if the record of the run cannot be read."""
    try:
        return run.record.title
    except HeadToHeadError:
        return slug


def _first_title(folder: StackFolder) -> str:
    """Return what people call the first variant of a stack.

    Raises:
        HeadToHeadError: If the record of the stack is missing or damaged.
    """
    return _variant_title(folder.runs()[0], folder.record.variants[0])


def _shared_phrases(folders: Iterable[StackFolder]) -> frozenset[str]:
    """Return the phrases that the titles of the first variants of all stacks share, without damaged stacks."""
    shared: frozenset[str] | None = None
    for folder in folders:
        with suppress(HeadToHeadError):
            phrases = frozenset(_first_title(folder).split(SEPARATOR))
            shared = phrases if shared is None else shared & phrases
    return shared or frozenset()


SEPARATOR = ", "
OMITTED = "…"
"""Stands for the omitted end of a title."""


def fitting_title(title: str, width: int, shared: Collection[str] = ()) -> str:
    """Return a title of phrases of at most ``width`` characters: whole phrases or, of a single longer one, whole words.

    A longer title is without the ``shared`` phrases and, if that is not enough, without its last phrases.

    >>> fitting_title("split heads, learning rate 0.003, 4 heads", 30, {"split heads"})
    'learning rate 0.003, 4 heads'
    >>> fitting_title("split heads, learning rate 0.003, 4 heads", 24, {"split heads"})
    'learning rate 0.003, …'
    >>> fitting_title("a causal instead of a padding and causal mask", 24)
    'a causal instead of a …'
    """
    if len(title) <= width:
        return title
    phrases = title.split(SEPARATOR)
    kept = [phrase for phrase in phrases if phrase not in shared] or phrases
    text = SEPARATOR.join(kept)
    while len(text) > width and len(kept) > 1:
        kept.pop()
        text = SEPARATOR.join([*kept, OMITTED])
    return shorten(text, width, placeholder=f" {OMITTED}")


def _describe_end(folder: StackFolder, code: int) -> str:
    """Return a text about the end of a stack's process: what happens next, or its runs, notes and failures.

    Args:
        folder: The stack, which exists.
        code: The exit code of the process, one of `exits`, or negative for a signal.

    Raises:
        HeadToHeadError: If the record of the stack or of a run is missing or damaged.
    """
    record = folder.record
    if code == exits.BUSY:
        return "waiting for another process that trains it"
    remaining = len(folder.open_runs())
    if code == exits.OOM and remaining and len(record.members) == 1:
        number = record.num_microbatches
        return f"out of memory; retrying with {number} microbatches"
    if code == exits.OOM and remaining:
        return f"out of memory; its {remaining} runs start again in two stacks"
    statuses = [run.status for run in folder.runs()]
    done = sum(status.state == states.DONE for status in statuses)
    runs = "; ".join([f"{done} of {len(statuses)} runs done", *record.notes])
    if code == exits.OK and done == len(statuses):
        return f"{runs}{_losses([folder.read_progress()])}"
    reasons = set()
    for status in statuses:
        if status.state != states.DONE:
            reasons.add(f"{status.state} ({status.reason})")
    return "; ".join([runs, *sorted(reasons)])


def _losses(progresses: Iterable[StackProgress | None]) -> str:
    """Return the training losses of stacks at their last evaluations as ``, loss 2.1 to 3.4``.

    A single loss, or several that print equal, is ``, loss 2.1``. Stacks without progress, or without a loss in it, are
    left out; if none is left, the text is empty.
    """
    losses = []
    for progress in progresses:
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


def _size(statuses: Sequence[_StackStatus]) -> str:
    """Return the number of open runs and of stacks."""
    runs = sum(status.open_runs for status in statuses)
    return f"{counted(runs, 'run')} in {counted(len(statuses), 'stack')}"


def failure_lines(experiment: Path, directories: Iterable[str]) -> Iterator[str]:
    """Yield a line for each distinct reason of an experiment's failed runs: their number, state, reason and a log.

    Runs in other states are left out. The log is the ``worker.log`` of the first of these runs whose stack has one; if
    none has, the line has no log.

    Args:
        experiment: The experiment's folder.
        directories: Names of run directories in it.

    Raises:
        HeadToHeadError: If a status or the record of a stack is damaged, or a stack has a symbolic link; while the
            iterator advances.
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
