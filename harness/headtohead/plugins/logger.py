"""Loggers: base class of what sends runs to an experiment tracker.

Training writes run directories only. A separate process per logger reads them and calls the logger, so that a slow or
unreachable tracker neither delays nor loses a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headtohead.plugins.entry import Entry


@dataclass(frozen=True)
class LoggedRun:
    """A run to log.

    Args:
        experiment: Name of the experiment.
        name: Name of the run directory, unique within the experiment.
        run_hash: Hash of all that the result depends on; the same for a retrained run.
        training: Hash that changes if the run begins at step 0 again, as with ``--fresh`` or ``--retry``.
        variant: Title of the variant.
        seed: Seed of the run.
        axes: Values of the experiment's axes.
        config: The complete configuration.
        root: Folder beside which a logger of files writes: that of the ``runs`` folder.
        directory: The run directory; a logger only reads it.
    """

    experiment: str
    name: str
    run_hash: str
    training: str
    variant: str
    seed: int
    axes: Mapping[str, Any]
    config: Mapping[str, Any]
    root: Path
    directory: Path = field(repr=False)


class Logger(Entry):
    """Sends a run to a tracker; one object per run.

    Calls in order: ``begin``, ``log`` for each step, ``end``. After a killed process, or an exception of a call, a new
    object begins again. Each step is logged once if ``begin`` returns the last step that the tracker has, or removes
    what an earlier object has written and returns -1.
    """

    def __init__(self, run: LoggedRun) -> None:
        self.run = run

    def exists(self) -> bool:
        """Return whether the tracker still has a run that was logged completely."""
        return True

    def begin(self) -> int:
        """Open the run and return the last step that the tracker has; -1 for none."""
        raise NotImplementedError

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Log all metrics of a step; ``seconds`` since 1970. Steps increase."""
        raise NotImplementedError

    def flush(self) -> None:
        """Make the logged steps visible. Called after a series of steps of an active run."""

    def end(self, state: str, results: Mapping[str, float]) -> None:
        """Close the run with its final state, such as DONE, and the results: scores of the best checkpoint and costs.

        With early stopping, a result such as the validation loss differs from the last value of its history.
        An interrupted run that continues begins again.
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Release what ``begin`` has opened. Called after an exception of another call, before a new object begins."""
