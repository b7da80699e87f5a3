"""The record of a stack: which runs train together, and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import ConfigDict

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.paths import inside
from headtohead.storage.records import JsonObject, read_record
from headtohead.storage.run_directory import RunDirectory

STACKS = ".stacks"

RECORD = "stack.json"
"""The file that makes a folder a stack."""


STRICT = ConfigDict(extra="forbid")
"""Unknown fields of a record are errors."""


@dataclass(frozen=True)
class StackMember:
    """A run of a stack; ``directory`` is relative to the experiment's folder.

    ``config`` is None where it equals that of the stack.
    """

    __pydantic_config__ = STRICT

    key: str
    seed: int
    directory: str
    config: JsonObject | None = None


@dataclass(frozen=True)
class StackRecord:
    """Everything a worker needs to train a stack, and to train it again in the same way.

    The last bits of the results depend on ``threads`` and on the members' order, so resumed and repeated runs keep
    both. ``prepared`` names a file of prepared data that replaces the dataset on another machine, where the dataset's
    own files are missing. ``notes`` are the worker's notes on how it trained.
    """

    __pydantic_config__ = STRICT

    variant: str
    config: JsonObject
    members: Sequence[StackMember]
    probes: Sequence[JsonObject] = ()
    threads: int = 1
    device: str = "cpu"
    num_microbatches: int = 1
    cache: str = ""
    prepared: str = ""
    timeout_seconds: float | None = None
    deaths: int = 0
    notes: Sequence[str] = ()
    format: int = 1

    @property
    def variants(self) -> list[tuple[str, Mapping[str, Any], list[StackMember]]]:
        """The variants that train here: name, configuration and members, who then need no own."""
        found: dict[str, tuple[str, Mapping[str, Any], list[StackMember]]] = {}
        for member in self.members:
            config = self.config if member.config is None else member.config
            name = member.directory.rpartition("-s")[0]
            found.setdefault(json.dumps(config, sort_keys=True), (name, config, []))[2].append(
                replace(member, config=None)
            )
        return list(found.values())

    def part(self, members: Sequence[StackMember]) -> StackRecord:
        """Return the record of a stack of some of the members."""
        chosen = replace(self, members=members, deaths=0)
        name, config, _ = chosen.variants[0]
        more = len(chosen.variants) - 1
        own = [self.config if one.config is None else one.config for one in members]
        return replace(
            chosen,
            variant=f"{name} and {more} more" if more else name,
            config=config,
            members=[
                replace(one, config=None if given == config else given) for one, given in zip(members, own, strict=True)
            ],
        )

    @property
    def id(self) -> str:
        """A name that the same members in the same order always give."""
        keys = json.dumps([member.key for member in self.members])
        return hashlib.sha256(keys.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class StackFolder:
    """The folder of a stack, under the experiment's ``.stacks``."""

    path: Path

    @property
    def experiment(self) -> Path:
        """The experiment's folder."""
        return self.path.parent.parent

    @property
    def resume_path(self) -> Path:
        """The resume point, which exists while the stack is unfinished."""
        return self.path / "resume.safetensors"

    @property
    def exists(self) -> bool:
        """Whether the stack is laid out; another process may have split or archived it."""
        return (self.path / RECORD).exists()

    @property
    def _lock(self) -> FileLock:
        return FileLock(self.path / "stack.lock")

    @property
    def record(self) -> StackRecord:
        """The content of stack.json.

        Raises:
            HeadToHeadError: If there is none, or a damaged one.
        """
        record = read_record(StackRecord, self.path / RECORD)
        if record is None:
            raise HeadToHeadError(f"'{self.path}' holds no {RECORD}; run the experiment again")
        return record

    def write(self, record: StackRecord) -> None:
        """Create or replace stack.json."""
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_json(self.path / RECORD, asdict(record))

    def change(self, **fields: Any) -> None:
        """Change fields of the record; a parent and a worker may do so at the same time."""
        with self._lock:
            self.write(replace(self.record, **fields))

    def note(self, words: str) -> None:
        """Add to the notes what is not among them: an attempt before may have said it."""
        with self._lock:
            if words not in self.record.notes:
                self.write(replace(self.record, notes=[*self.record.notes, words]))

    def open_runs(self) -> list[RunDirectory]:
        """Return the members' directories that are still to be trained or scored."""
        return [run for run in self.runs() if run.state not in states.FINAL]

    def runs(self) -> list[RunDirectory]:
        """Return the members' directories, in their order.

        Raises:
            HeadToHeadError: If one leaves the experiment's folder, or a symbolic link is met.
        """
        experiment, members = self.experiment, self.record.members
        return [RunDirectory(inside(experiment, one.directory)) for one in members]

    def write_progress(self, **fields: Any) -> None:
        """Write the progress of the stack; only watchers read it, so it is not synced."""
        files.write_json(self.path / "progress.json", fields, sync=False)

    def read_progress(self) -> dict[str, Any]:
        """Return the last progress that the worker wrote; empty before the first."""
        try:
            progress: dict[str, Any] = files.read_json(self.path / "progress.json")
        except (FileNotFoundError, HeadToHeadError):
            return {}
        return progress


def stack_folders(experiment: Path) -> list[StackFolder]:
    """Return the stacks that an experiment's folder holds.

    Raises:
        HeadToHeadError: If a symbolic link is met in the folder of a stack.
    """
    found = sorted(path.parent.name for path in (experiment / STACKS).glob(f"*/{RECORD}"))
    return [StackFolder(inside(experiment, STACKS, name, tree=True)) for name in found]
