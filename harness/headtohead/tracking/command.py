"""The loggers of one command: a process per logger and experiment ships its runs while they train."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headtohead.errors import HeadToHeadError
from headtohead.plugins.logger import Answer
from headtohead.tracking import shipper
from headtohead.tracking.shipping import DEFAULT_LOGGERS, logger_entry


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
        self.seconds_to_ship = shipper.shipping_seconds()
        self.followed = ""
        """Name of the experiment whose runs are shipped now."""
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

    def follow(self, experiment: str, folder: Path) -> None:
        """Ship the runs of an experiment from now on, instead of those of the experiment before."""
        if self.followed == experiment:
            return
        self.close()
        self.followed = experiment
        started = []
        for name in self.names:
            process = shipper.start_shipper(folder, name)
            if process is not None:
                started.append((experiment, process))
        self.shippers = started + self.shippers

    def close(self, answer: Answer | None = None) -> None:
        """Signal every process to end after a final pass that logs the answer, without waiting for it."""
        for _, process in self.shippers:
            process.close(answer)

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
                self.log(process.logged_line(self.root))
