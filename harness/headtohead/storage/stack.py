"""A stack: the runs that train together, their settings, and the points from which training resumes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from filelock import FileLock
from pydantic import Field
from typing_extensions import TypedDict

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.schema.run_config import RunConfig
from headtohead.storage import states
from headtohead.storage.experiment import ProbeSentence
from headtohead.storage.leases import Lease
from headtohead.storage.paths import checked_path
from headtohead.storage.record import (
    Count,
    NonNegative,
    Number,
    Record,
    Seed,
    read_record,
    required_record,
)
from headtohead.storage.run import RUN, ExecutionRecord
from headtohead.storage.run_directory import RunDirectory, RunWriter

STACKS = ".stacks"

RECORD = "stack.json"
"""A folder with this file is a stack."""

MAX_THREADS = 4096
RESUME_POINT = re.compile(r"resume-([0-9]{1,18})-([0-9a-f]{64})\.safetensors")


class StackProgress(TypedDict):
    """The content of ``progress.json``; ``loss`` is the mean training loss of the members at the last evaluation."""

    step: Count
    steps: Count
    seconds: NonNegative
    loss: NotRequired[Number | None]


class StackMember(Record):
    """A run of a stack; ``directory`` is relative to the experiment's folder."""

    variant: str
    run_hash: str
    seed: Seed
    directory: str


class StackRecord(Record):
    """Everything a worker needs to train a stack, or to reproduce it.

    The records of the members have their configurations. The last bits of the results depend on ``threads`` and on the
    order of members, so resumed and reproduced runs keep both. ``cache`` is the folder of prepared data. ``notes`` are
    the worker's notes, such as the reason of a fallback.
    """

    members: Annotated[tuple[StackMember, ...], Field(min_length=1)]
    probes: tuple[ProbeSentence, ...] = ()
    threads: Annotated[int, Field(strict=True, ge=1, le=MAX_THREADS)] = 1
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d{1,3})?)$")] = "cpu"
    num_microbatches: Annotated[int, Field(strict=True, ge=1, lt=2**31)] = 1
    cache: str = ""
    timeout_seconds: NonNegative | None = None
    deaths: Count = 0
    notes: tuple[str, ...] = ()
    format: Literal[1] = 1

    @property
    def variants(self) -> list[str]:
        """The slugs of the variants, that of the first member first."""
        return list(dict.fromkeys(member.variant for member in self.members))

    @property
    def title(self) -> str:
        """The slug of the first variant, and the number of others."""
        return self.title_with(self.variants[0])

    def title_with(self, name: str) -> str:
        """Return a name of the first variant, and the number of others."""
        others = len(self.variants) - 1
        return f"{name} and {others} more" if others else name

    def part(self, members: Iterable[StackMember]) -> StackRecord:
        """Return the record of a stack with a subset of the members."""
        return self.model_copy(update={"members": tuple(members), "deaths": 0})

    @property
    def hashes(self) -> set[str]:
        """The run hashes of the members."""
        return {member.run_hash for member in self.members}

    @property
    def id(self) -> str:
        """An identifier that depends only on the members and their order."""
        run_hashes = json.dumps([member.run_hash for member in self.members])
        return hashlib.sha256(run_hashes.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ResumePoint:
    """A resume point, with the step and the sha256 of its file name."""

    path: Path
    step: int
    sha256: str

    def is_intact(self) -> bool:
        """Return whether the file has the content that was written.

        Raises:
            OSError: If the file cannot be opened, which does not show that it is damaged.
        """
        try:
            with files.disk_errors():
                return files.sha256(self.path) == self.sha256
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False


@dataclass(frozen=True)
class ResumePoints:
    """The resume points in a folder: files of tensors from which training continues after an interruption.

    The name of a file contains its step and the sha256 of its content, so a file and its checksum are published in a
    single rename. The two newest are kept; if the newest is damaged, training continues from the other.
    """

    folder: Path

    def newest_first(self) -> list[ResumePoint]:
        """Return the resume points by descending step."""
        points = []
        for path in self.folder.glob("resume-*"):
            match = RESUME_POINT.fullmatch(path.name)
            if match is not None:
                points.append(ResumePoint(path, int(match[1]), match[2]))
        return sorted(points, key=lambda point: point.step, reverse=True)

    def save(self, step: int, write: Callable[[Path], object]) -> None:
        """Write the resume point of a step, and remove all but the newest earlier resume point."""
        # The sha256 of a large file is not known before it is written.
        unnamed = self.folder / "resume-unnamed.safetensors"
        write(unnamed)
        named = self.folder / f"resume-{step}-{files.sha256(unnamed)}.safetensors"
        os.replace(unnamed, named)
        others = [point for point in self.newest_first() if point.path != named]
        earlier = [point for point in others if point.step < step][:1]
        for point in others:
            if point not in earlier:
                point.path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all resume points."""
        for path in self.folder.glob("resume-*"):
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class StackFolder:
    """The folder of a stack in the experiment's ``.stacks``."""

    path: Path

    @property
    def experiment(self) -> Path:
        """The experiment's folder."""
        return self.path.parent.parent

    @property
    def resume_points(self) -> ResumePoints:
        """The resume points, which exist while runs of the stack have no final state, or are over their time limit."""
        return ResumePoints(self.path)

    @property
    def exists(self) -> bool:
        """Whether the folder is a stack; another process may have split or archived it."""
        return (self.path / RECORD).exists()

    @property
    def record(self) -> StackRecord:
        """The content of stack.json."""
        return required_record(StackRecord, self.path / RECORD, "run the experiment again")

    def write(self, record: StackRecord) -> None:
        """Create or replace stack.json."""
        self.path.mkdir(parents=True, exist_ok=True)
        files.write_json(self.path / RECORD, record.to_json())

    def change(self, **fields: Any) -> None:
        """Change fields of the record; safe for concurrent use by parent and worker."""
        with FileLock(self.path / "stack.lock"):
            self.write(self.record.model_copy(update=fields))

    def note(self, text: str) -> None:
        """Add a note of the worker, unless an earlier attempt has added the same text."""
        with FileLock(self.path / "stack.lock"):
            record = self.record
            if text not in record.notes:
                self.write(record.model_copy(update={"notes": (*record.notes, text)}))

    def open_runs(self) -> list[RunDirectory]:
        """Return the run directories of members without a final state."""
        return [run for run in self.runs() if run.state not in states.FINAL]

    def runs(self) -> list[RunDirectory]:
        """Return the run directories in the order of members."""
        experiment = self.experiment
        return [
            RunDirectory(checked_path(experiment, member.directory))
            for member in self.record.members
        ]

    def configs(self) -> dict[str, RunConfig]:
        """Return the configuration of each variant from the record of its first run, that of the first member first."""
        configs: dict[str, RunConfig] = {}
        for member, run in zip(self.record.members, self.runs(), strict=True):
            if member.variant not in configs:
                configs[member.variant] = run.record.config
        return configs

    def record_execution(self, lease: Lease, paths: Set[Path]) -> None:
        """Write the execution settings of the stack into the records of its runs in these directories."""
        record = self.record
        for index, run in enumerate(self.runs()):
            if run.path not in paths:
                continue
            run_record = run.record
            execution = ExecutionRecord(
                stack=tuple(member.run_hash for member in record.members),
                member=index,
                threads=record.threads,
                device=record.device,
                dtype=run_record.config.train.precision,
            )
            changed = run_record.model_copy(update={"execution": execution})
            RunWriter(run.path, lease).write_json(RUN, changed.to_json())

    def write_progress(self, **fields: Any) -> None:
        """Write the progress of the stack, without fsync, since only progress displays read it."""
        files.write_json(self.path / "progress.json", fields, sync=False)

    def read_progress(self) -> StackProgress | None:
        """Return the progress written last by the worker; None if there is none or the file is damaged."""
        try:
            return read_record(StackProgress, self.path / "progress.json")
        except HeadToHeadError:
            return None


def stack_folders(experiment: Path) -> list[StackFolder]:
    """Return the stacks in an experiment's folder."""
    names = sorted(path.parent.name for path in (experiment / STACKS).glob(f"*/{RECORD}"))
    return [StackFolder(checked_path(experiment, STACKS, name, tree=True)) for name in names]
