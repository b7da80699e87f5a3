"""Runs that the runs folder already holds. Each directory is listed once, each record read once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headtohead.config.source_location import dotted
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.leases import observe
from headtohead.storage.paths import inside
from headtohead.storage.records import RUN, RunRecord, StatusRecord, read_record
from headtohead.storage.shared_text import SharedText

_DIRECTORY = re.compile(r"-s(\d+)-([0-9a-f]{8})$")


@dataclass(frozen=True)
class ExistingRun:
    """A run directory that holds a wanted run hash."""

    experiment: str
    directory: str
    path: Path
    record: RunRecord
    status: StatusRecord
    state: str

    @property
    def reference(self) -> str:
        """Its path, relative to the root of all runs."""
        return f"{self.experiment}/{self.directory}"

    def compared(self) -> ExistingRun:
        """Return the run without the fields that were compared with the plan; of 10,000 runs they fill the memory."""
        return replace(self, record=self.record.model_copy(update={"config": {}, "data": {}}))


class ExistingRuns:
    """Run directories under one root, by the first digits of their run hash."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._text = SharedText()
        self._names: dict[str, list[tuple[str, str]]] = {}
        for experiment in _folders(root):
            for name in _folders(root / experiment):
                match = _DIRECTORY.search(name)
                if match:
                    self._names.setdefault(match.group(2), []).append((experiment, name))

    def find(self, key: str, experiment: str, directory: str) -> ExistingRun | None:
        """Return the run of this experiment with the run hash, else a result in another experiment.

        The directory of a run differs from the planned one where the design has gained an axis since: every axis is
        part of the directory's name.
        """
        found = [run for run in map(self._read, self._names.get(key[:8], ())) if run and run.record.key == key]
        own = [run for run in found if run.experiment == experiment]
        if own:
            return min(own, key=lambda run: (run.directory != directory, run.directory))
        results = [run for run in found if run.state in states.RESULTS]
        return min(results, key=lambda run: (run.state != states.DONE, run.reference), default=None)

    def _read(self, name: tuple[str, str]) -> ExistingRun | None:
        path = inside(self.root, *name)
        record = read_record(RunRecord, path / RUN, self._text.parse)
        return None if record is None else ExistingRun(*name, path, record, *observe(path))


def refuse_difference(found: ExistingRun, identity: Mapping[str, Any], agreed: object = None) -> None:
    """Compare the stored configuration with the planned one, which has the same key.

    Args:
        found: The stored run.
        identity: Of the planned variant.
        agreed: A stored configuration that was compared with it before.

    Raises:
        HeadToHeadError: If they differ, naming the first field.
    """
    stored, where = found.record.config, None
    if stored is not agreed:
        where = _difference(identity["config"], stored, ())
    if where is None and found.record.data.get("data_hash") != identity["data_hash"]:
        where = ("data", "data_hash")
    if where is not None:
        raise HeadToHeadError(
            f"{found.path / RUN} has the key of the planned run but another "
            f"{dotted(where)}; it was changed by hand or damaged, move its directory away"
        )


def _difference(planned: Any, stored: Any, path: tuple[str | int, ...]) -> tuple[str | int, ...] | None:
    """Return the first planned field that is stored otherwise; further stored fields are free."""
    if isinstance(planned, Mapping) and isinstance(stored, Mapping):
        for name, value in planned.items():
            other = stored.get(name)
            if value == other:
                continue
            found = _difference(value, other, (*path, name))
            if found is not None:
                return found
        return None
    return None if planned == stored else path


def _folders(path: Path) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != ".")
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise HeadToHeadError(f"runs folder '{path}' is not a folder; name another") from error
    except PermissionError as error:
        raise HeadToHeadError(f"runs folder '{path}' cannot be read: {error.strerror}") from error
