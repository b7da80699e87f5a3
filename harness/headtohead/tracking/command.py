"""The loggers of one command: a process per logger and experiment ships its runs while they train."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headtohead.config.project import next_command
from headtohead.errors import HeadToHeadError
from headtohead.tracking import shipper
from headtohead.tracking.shipping import MLFLOW, require


class CommandLoggers:
    """Ships the runs of a command to loggers.

    Args:
        names: Names of registered loggers.
        root: The folder of run directories.
        reports: The folder of reports, which loggers ship too.
        log: Receives lines of text for the user.
    """

    def __init__(
        self, names: Sequence[str], root: Path, reports: Path, log: Callable[[str], object]
    ) -> None:
        self.names = names
        self.root = root
        self.reports = reports
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
        reports: Path,
        log: Callable[[str], object],
        *,
        tracking: bool,
    ) -> CommandLoggers:
        """Return the named loggers, and that of MLflow with ``tracking``.

        Raises:
            HeadToHeadError: If MLflow is named without ``tracking``.
        """
        if MLFLOW in names and not tracking:
            raise HeadToHeadError(
                "--no-tracking and --logger mlflow (tracking and loggers in Python) exclude each other"
            )
        all_names = [MLFLOW, *names] if tracking else names
        return cls(list(dict.fromkeys(all_names)), root, reports, log)

    def require(self) -> None:
        """Raise if a logger is unknown or lacks a package."""
        for name in self.names:
            require(name)

    def follow(self, experiment: str, folder: Path) -> None:
        """Ship the runs of an experiment from now on, instead of those of the experiment before."""
        if self.followed == experiment:
            return
        self.close()
        self.followed = experiment
        started = []
        for name in self.names:
            process = shipper.start_shipper(folder, name, self.reports)
            if process is not None:
                started.append((experiment, process))
        self.shippers = started + self.shippers

    def close(self) -> None:
        """Signal every process to end after a final pass, without waiting for it."""
        for _, process in self.shippers:
            process.close()

    def finish(self, experiment: str, target: Path | str) -> None:
        """Wait a limited time for the processes, and print where the runs are or how to log the rest.

        Args:
            experiment: Name of the experiment of the command, without its sweep.
            target: Names this experiment in printed commands.
        """
        until = time.monotonic() + shipper.QUIET_SECONDS + self.seconds_to_ship
        for name, process in self.shippers:
            sync = next_command("sync", target if name == experiment else name, self.root)
            if process.logger != MLFLOW:
                sync += f" --logger {process.logger}"
            missing = process.finish(sync, until, self.log)
            if missing:
                self.log(missing)
            elif name == experiment:
                shipped = f"{process.logger}: all runs are logged to {process.tracker}"
                if process.logger == MLFLOW:
                    shipped += f"; {next_command('ui', None, self.root)} opens the charts"
                self.log(shipped)
