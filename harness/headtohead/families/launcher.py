"""Launchers: where stacks run. The run directory is the contract between parent and worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headtohead.families.entry import Entry


@dataclass(frozen=True)
class Job:
    """One stack to train: its folder holds ``stack.json``, which names everything else.

    ``device`` is a torch device type; a launcher with several GPUs picks one.
    """

    stack: Path
    device: str


@dataclass(frozen=True)
class Exit:
    """How a worker process ended: its exit code, negative for a signal, as subprocess has it."""

    job: Job
    code: int


class Launcher(Entry):
    """Starts workers for jobs and reports their ends."""

    def warm(self) -> None:
        """Get ready while the study is planned, if that makes the first start quicker.

        Called once the experiment file is known to be sound; perhaps nothing will be launched.
        """

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job, at most ``workers`` at once, yielding each exit as it happens.

        Between exits None is yielded a few times a second, so that the caller can show progress.
        Closing the iterator ends the workers that still run.
        """
        raise NotImplementedError
