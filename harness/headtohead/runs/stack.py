"""The record of a stack: which runs train together, and how."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headtohead.runs import files
from headtohead.runs.directory import RunDirectory

STACKS = ".stacks"


@dataclass(frozen=True)
class StackMember:
    """One run of a stack; ``directory`` is relative to the experiment's folder.

    ``config`` is None where it is that of the stack.
    """

    key: str
    seed: int
    directory: str
    config: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class StackRecord:
    """Everything a worker needs to train a stack, and to train it again in the same way.

    ``threads`` and the members' order shape the last bits of the results, so they are kept for
    resumed and repeated runs. ``prepared`` names a file of prepared data to take instead of asking
    the dataset: on another machine the dataset's own files are not there. ``notes`` are what the
    worker has to say of how it trained.
    """

    variant: str
    config: Mapping[str, Any]
    members: Sequence[StackMember]
    probes: Sequence[Mapping[str, Any]] = ()
    threads: int = 1
    device: str = "cpu"
    micro_batch: int = 1
    cache: str = ""
    prepared: str = ""
    plugin_files: Sequence[str] = ()
    timeout_seconds: float | None = None
    deaths: int = 0
    notes: Sequence[str] = ()
    format: int = field(default=1)

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
    def record(self) -> StackRecord:
        """The content of stack.json."""
        raw = files.read_json(self.path / "stack.json")
        raw["members"] = [StackMember(**member) for member in raw["members"]]
        return StackRecord(**raw)

    def write(self, record: StackRecord) -> None:
        """Create or replace stack.json."""
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_json(self.path / "stack.json", asdict(record))

    def change(self, **fields: Any) -> None:
        """Change fields of the record."""
        self.write(replace(self.record, **fields))

    def note(self, words: str) -> None:
        """Add to the notes what is not among them: an attempt before may have said it."""
        if words not in self.record.notes:
            self.change(notes=[*self.record.notes, words])

    def runs(self) -> list[RunDirectory]:
        """Return the members' directories, in their order."""
        return [RunDirectory(self.experiment / m.directory) for m in self.record.members]

    def write_progress(self, **fields: Any) -> None:
        """Say where the stack stands; a convenience for watchers, not synced."""
        temporary = self.path / ".progress.tmp"
        temporary.write_text(json.dumps(fields), encoding="utf-8")
        temporary.replace(self.path / "progress.json")

    def read_progress(self) -> dict[str, Any]:
        """Return what was last said, or nothing."""
        try:
            progress: dict[str, Any] = files.read_json(self.path / "progress.json")
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return progress


def stack_folders(experiment: Path) -> list[StackFolder]:
    """Return the stacks that an experiment's folder knows."""
    return [StackFolder(path.parent) for path in sorted((experiment / STACKS).glob("*/stack.json"))]
