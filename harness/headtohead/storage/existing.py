"""What the runs folder already holds: each directory is listed once, each record read once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headtohead.config.source_location import dotted
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.leases import observe
from headtohead.storage.paths import inside
from headtohead.storage.shared_text import SharedText

_COMPARED = ("config", "data")
"""What of ``run.json`` is only compared; of 10,000 runs it would fill the memory."""

_DIRECTORY = re.compile(r"-s(\d+)-([0-9a-f]{8})$")


@dataclass(frozen=True)
class Found:
    """A run directory that holds a wanted key."""

    experiment: str
    directory: str
    path: Path
    record: Mapping[str, Any]
    status: Mapping[str, Any]
    state: str

    @property
    def reference(self) -> str:
        """Where it is, relative to the root of all runs."""
        return f"{self.experiment}/{self.directory}"

    def compared(self) -> Found:
        """Return the run without what was compared with the plan and is known to agree."""
        kept = {name: value for name, value in self.record.items() if name not in _COMPARED}
        return replace(self, record=kept)


class ExistingRuns:
    """Run directories under one root, by the start of their key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._text = SharedText()
        self._names: dict[str, list[tuple[str, str]]] = {}
        for experiment in _folders(root):
            for name in _folders(root / experiment):
                match = _DIRECTORY.search(name)
                if match:
                    self._names.setdefault(match.group(2), []).append((experiment, name))

    def find(self, key: str, experiment: str, directory: str) -> Found | None:
        """Return the run of this experiment with the key, else a result in another experiment.

        A run is found under another directory than the planned one where the design has gained an
        axis since, which is part of every variant's name.
        """
        found = [one for one in map(self._read, self._names.get(key[:8], ())) if one]
        found = [one for one in found if one.record.get("key") == key]
        own = [one for one in found if one.experiment == experiment]
        if own:
            return min(own, key=lambda one: (one.directory != directory, one.directory))
        results = [one for one in found if one.state in states.RESULTS]
        return min(results, key=lambda one: (one.state != states.DONE, one.reference), default=None)

    def _read(self, name: tuple[str, str]) -> Found | None:
        path = inside(self.root, *name)
        record = read_json(f"{path}/run.json", self._text.parse)
        if record is None:
            return None
        status, state = observe(path, lambda: read_json(f"{path}/status.json") or {})
        return Found(*name, path, record, status, state)


def read_json(path: str | Path, parse: Callable[[str], Any] = json.loads) -> dict[str, Any] | None:
    """Return the content of a record; None if there is none yet.

    Args:
        path: Of the file.
        parse: Reads the text.

    Raises:
        HeadToHeadError: If the file is there and is not a JSON mapping.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            value = parse(str(file.read(), "utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, OSError) as error:
        raise HeadToHeadError(f"cannot read '{path}': {error}; move its directory away and run again") from error
    if not isinstance(value, dict):
        raise HeadToHeadError(f"'{path}' is not a record; move its directory away and run again")
    return value


def refuse_difference(found: Found, identity: Mapping[str, Any], agreed: object = None) -> None:
    """Compare the stored configuration with the planned one, which has the same key.

    Args:
        found: The stored run.
        identity: Of the planned variant.
        agreed: A stored configuration that was compared with it before.

    Raises:
        HeadToHeadError: If they differ, naming the first field.
    """
    stored, where = found.record.get("config"), None
    if stored is None or stored is not agreed:
        where = _difference(identity["config"], stored, ())
    if where is None and found.record.get("data", {}).get("fingerprint") != identity["fingerprint"]:
        where = ("data", "fingerprint")
    if where is not None:
        raise HeadToHeadError(
            f"{found.path / 'run.json'} has the key of the planned run but another "
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
            return sorted(one.name for one in entries if one.is_dir() and one.name[0] != ".")
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        raise HeadToHeadError(f"runs folder '{path}' is not a folder; name another") from error
    except PermissionError as error:
        raise HeadToHeadError(f"runs folder '{path}' cannot be read: {error.strerror}") from error
