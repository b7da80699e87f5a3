"""Lookup of existing runs by run hash. Each folder is listed once and each record is read once."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.leases import observe
from headtohead.storage.paths import checked_path
from headtohead.storage.record import read_record
from headtohead.storage.run import RUN, RunRecord, StatusRecord

_DIRECTORY = re.compile(r"-s\d+-[0-9a-f]{8}$")


class ExistingRun(NamedTuple):
    """A run directory that was found by its run hash."""

    path: Path
    record: RunRecord
    status: StatusRecord

    @property
    def experiment(self) -> str:
        """The name of the experiment's folder."""
        return self.path.parent.name

    @property
    def reference(self) -> str:
        """The path of the run relative to the runs folder."""
        return f"{self.experiment}/{self.path.name}"


class ExistingRuns:
    """The run directories of a runs folder, indexed by the first eight digits of the run hash.

    It leaves out ``ignored`` references and, if ``experiments`` are given, the runs of all others.
    """

    def __init__(
        self, root: Path, ignored: Collection[str] = (), experiments: Collection[str] | None = None
    ) -> None:
        self.root = root
        self._names: dict[str, list[tuple[str, str]]] = {}
        if experiments is None:
            experiments = _folders(root)
        for experiment in experiments:
            for name in _folders(root / experiment):
                if _DIRECTORY.search(name) and f"{experiment}/{name}" not in ignored:
                    self._names.setdefault(name[-8:], []).append((experiment, name))

    def find(self, run_hash: str, experiment: str, directory: str) -> ExistingRun | None:
        """Return the experiment's run with this run hash, else a finished run of another experiment, else None.

        The directory's name contains every axis of the design, so it differs from ``directory`` if an axis was
        added after the run was planned.
        """
        of_experiment = []
        with_result = []
        for name in self._names.get(run_hash[:8], ()):
            run = self._read(name)
            if run is None or run.record.run_hash != run_hash:
                continue
            if run.experiment == experiment:
                of_experiment.append(run)
            elif run.status.state in states.RESULTS:
                with_result.append(run)
        if of_experiment:
            return min(of_experiment, key=lambda run: (run.path.name != directory, run.path))
        if with_result:
            return min(
                with_result, key=lambda run: (run.status.state != states.DONE, run.reference)
            )
        return None

    def _read(self, name: tuple[str, str]) -> ExistingRun | None:
        path = checked_path(self.root, *name)
        record = read_record(RunRecord, path / RUN)
        if record is None:
            return None
        return ExistingRun(path, record, observe(path))


def run_directories(experiment: Path) -> list[Path]:
    """Return the run directories of an experiment by their names; none if the folder does not exist."""
    return [
        checked_path(experiment, name) for name in _folders(experiment) if _DIRECTORY.search(name)
    ]


def refuse_difference(existing: ExistingRun, identity: Mapping[str, Any]) -> None:
    """Raise if a run's stored configuration is not the identity of the planned run with the same run hash."""
    record = existing.record
    config = record.config.model_dump(mode="json")
    stored = {"config": config, "data_hash": record.data["data_hash"]}
    name = _first_difference(stored, identity)
    if name is not None:
        field = name.removeprefix("config.")
        raise HeadToHeadError(
            f"{existing.path / RUN} has the run hash of the planned run but a different {field}; "
            "the file is damaged or was edited, move its directory away"
        )


def _first_difference(stored: Any, identity: Mapping[str, Any]) -> str | None:
    """Return the dotted name of the first field of an identity that a stored configuration lacks or has differently.

    Fields that the identity does not have are ignored.
    """
    for name, value in identity.items():
        stored_value = stored.get(name) if isinstance(stored, Mapping) else None
        if stored_value == value:
            continue
        if not isinstance(value, Mapping):
            return name
        inner = _first_difference(stored_value, value)
        if inner is not None:
            return f"{name}.{inner}"
    return None


def _folders(path: Path) -> list[str]:
    """Return the names of the folders in a folder, except names that begin with a dot, sorted."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
        return sorted(name for name in names if not name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HeadToHeadError(
            f"cannot read the runs folder '{path}': {error.strerror}; choose another with --runs"
        ) from error
