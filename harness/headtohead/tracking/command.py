"""The loggers of one command: a process per logger and experiment ships its runs while they train."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headtohead.errors import HeadToHeadError
from headtohead.plugins.logger import Answer
from headtohead.tracking import shipper
from headtohead.tracking.shipping import DEFAULT_LOGGERS, logger_entry, shipping_seconds
from headtohead.tracking.study import TrackedStudy


class CommandLoggers:
    """Ships the runs of a command to loggers.

    Args:
        names: Names of registered loggers.
        root: The folder of run directories.
        log: Receives lines of text for the user.
    """

    def __init__(self, names: Sequence[str], root: Path, log: Callable[[str], object]) -> None:
        self.names = names
        self.root = root
        self.log = log
        self.seconds_to_ship = shipping_seconds()
        self.followed: Path | None = None
        """Folder of the experiment whose runs are shipped now."""
        self.waiting: list[str] = []
        """The loggers that have no process for this experiment yet."""
        self.complete: list[str] = []
        """The loggers that had everything before, and so have no process."""
        self.shippers: list[tuple[str, shipper.ShipperProcess]] = []
        """The name of the experiment of each process; those of the last experiment are first."""

    @classmethod
    def chosen(
        cls,
        names: Sequence[str],
        root: Path,
        log: Callable[[str], object],
        *,
        tracking: bool,
    ) -> CommandLoggers:
        """Return the named loggers, and the default ones with ``tracking``.

        Raises:
            HeadToHeadError: If a default logger is named without ``tracking``.
        """
        if tracking:
            return cls(list(dict.fromkeys([*DEFAULT_LOGGERS, *names])), root, log)
        for name in names:
            if name in DEFAULT_LOGGERS:
                raise HeadToHeadError(
                    f"--no-tracking and --logger {name} (tracking and loggers in Python) exclude each other"
                )
        return cls(list(dict.fromkeys(names)), root, log)

    def require(self) -> None:
        """Raise if a logger is unknown or lacks a package."""
        for name in self.names:
            logger_entry(name).require()

    def follow(self, folder: Path) -> None:
        """Ship the runs of an experiment's folder from `start` on, instead of those of the experiment before."""
        if self.followed == folder:
            return
        self.close()
        self.followed = folder
        self.waiting = [*self.names]
        self.complete = []

    def start(self) -> None:
        """Start the processes of the followed experiment, if they are not started yet."""
        assert self.followed is not None
        started = []
        for name in self.waiting:
            process = shipper.start_shipper(self.followed, name)
            if process is not None:
                started.append((self.followed.name, process))
        self.shippers = started + self.shippers
        self.waiting = []

    def close(self, answer: Answer | None = None) -> None:
        """Signal every process to end after a final pass that logs the answer, without waiting for it.

        Loggers without a process, since nothing was trained, get one if their tracker lacks something.
        """
        self.complete += [name for name in self.waiting if self._has_all(name, answer)]
        self.waiting = [name for name in self.waiting if name not in self.complete]
        if self.waiting:
            self.start()
        self.abandon(answer)

    def abandon(self, answer: Answer | None = None) -> None:
        """Signal every process to end, as `close` does, without starting one."""
        for _, process in self.shippers:
            process.close(answer)

    def _has_all(self, name: str, answer: Answer | None) -> bool:
        """Return whether a logger's tracker has the followed experiment; False if its record cannot be read."""
        assert self.followed is not None
        try:
            return logger_entry(name).has_all(TrackedStudy.read(self.followed), answer)
        except HeadToHeadError:  # the pass reports it
            return False

    def finish(self, experiment: str, target: Path | str) -> None:
        """Wait a limited time for the processes, and print where the runs are or how to log the rest.

        Args:
            experiment: Name of the experiment of the command, without its sweep.
            target: Names this experiment in printed commands.
        """
        until = time.monotonic() + shipper.QUIET_SECONDS + self.seconds_to_ship
        for name, process in self.shippers:
            sync = process.sync_command(target if name == experiment else name, self.root)
            missing = process.finish(sync, until, self.log)
            if missing is not None:
                self.log(missing)
            elif name == experiment:
                self.log(shipper.logged_line(process.logger, self.root))
        for name in self.complete:
            self.log(shipper.logged_line(name, self.root))
