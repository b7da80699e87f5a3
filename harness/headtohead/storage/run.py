"""The records of a run: ``run.json`` and ``status.json``, and the names of its files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from headtohead.plugins.reads import labelled_hashes
from headtohead.storage import states
from headtohead.storage.experiment import DataRecord, ResolvedVariant
from headtohead.storage.record import (
    Count,
    Date,
    Record,
    Seed,
    Sha256,
    Sides,
    Versions,
    read_record,
)

RUN = "run.json"
STATUS = "status.json"
RESULTS = "results.json"
HEADS = "heads.json"
METRICS = "metrics.jsonl"
CHECKPOINT = "checkpoint.safetensors"
VOCABULARY = "vocabulary.json"
TRANSLATIONS = "translations.tsv"
EXAMPLES = "examples.safetensors"
MAPS = "attention/maps.safetensors"
PROBES = "attention/probes.json"

RESULT_FILES = (RESULTS, CHECKPOINT, VOCABULARY, TRANSLATIONS, EXAMPLES, MAPS, PROBES, HEADS)
"""Files with the results of a run. Every attempt writes them anew."""

RUN_FILES = (RUN, METRICS, *RESULT_FILES)
"""Files that a finished run consists of; ``status.json`` has the sha256 of each, and of its files in ``attempts/``."""

EARLIER_ATTEMPT = r"attempts/[0-9]+\.(metrics\.jsonl|json)"
"""Pattern of the files of an earlier attempt: its status, and its histories if the next attempt began at step 0."""

FileName = Annotated[
    str, Field(pattern=f"^({'|'.join(map(re.escape, RUN_FILES))}|{EARLIER_ATTEMPT})$")
]


class ReadRecord(Record):
    """A file, folder or environment variable that an entry declares to read.

    ``path`` is ``./`` and a path in the project, or an absolute path; None for a variable.
    """

    name: str
    path: str | None
    sha256: Sha256


class PluginRecord(Record):
    """A plugin entry that a run uses.

    ``source`` names the file with the sha256 ``source_sha256``: an import name, ``./`` and a path in the project, or an
    absolute path; None for a notebook cell.
    """

    family: str
    name: str
    module: str
    distribution: str
    version: str
    source_sha256: str
    source: str | None = None
    reads: tuple[ReadRecord, ...] = ()

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes of the source and of what the entry read, as `labelled_hashes` returns them."""
        reads = [(read.name, read.sha256) for read in self.reads]
        return labelled_hashes(self.family, self.name, self.source_sha256, reads)


class ExecutionRecord(Record):
    """How a run is trained: the run hashes of its stack, its member index, threads, device and precision."""

    stack: tuple[str, ...]
    member: Count
    threads: Count
    device: str | None
    dtype: str


class ImportedRecord(Record):
    """The origin of an imported checkpoint; ``words`` are its vocabulary sizes by side."""

    file: str
    sha256: str
    form: str
    words: Sides
    positions: Count | None


class RunRecord(ResolvedVariant):
    """Identity, configuration and origin of a run; ``execution`` is None until its stack is laid out."""

    format: Literal[1] = 1
    run_hash: str
    experiment: str
    variant: str
    seed: Seed
    plugins: tuple[PluginRecord, ...]
    data: DataRecord
    execution: ExecutionRecord | None = None
    recipe: str | None = None
    imported: ImportedRecord | None = None
    versions: Versions
    created: Date

    @property
    def sources(self) -> dict[str, str]:
        """The hashes of all plugin entries and of what they read."""
        return {label: sha256 for plugin in self.plugins for label, sha256 in plugin.hashes.items()}


class StatusRecord(Record):
    """State and progress of a run; the defaults hold for a run without ``status.json``.

    ``files`` has the sha256 of every file of a finished run, by name.
    """

    state: str = Field(states.PLANNED, pattern=f"^({'|'.join(sorted(states.STORED))})$")
    reason: str | None = None
    signature: str | None = None
    step: Count = 0
    steps: Count | None = None
    started: Date | None = None
    ended: Date | None = None
    attempt: Count = 0
    host: str | None = None
    pid: Count | None = None
    files: Mapping[FileName, Sha256] = Field(default_factory=dict)


def read_status(run: Path) -> StatusRecord:
    """Return the status of a run directory; a run without ``status.json`` is PLANNED.

    A finished run without one of its files is INTERRUPTED, so that the same command retrains it. ``heads.json`` and
    the files of earlier attempts are not results of training.
    """
    status = stored_status(run)
    required = (name for name in RUN_FILES if name in status.files and name != HEADS)
    missing = next((name for name in required if not os.path.isfile(run / name)), None)
    if missing is None:
        return status
    return status.model_copy(
        update={"state": states.INTERRUPTED, "reason": f"{missing} is missing", "files": {}}
    )


def stored_status(run: Path) -> StatusRecord:
    """Return the content of ``status.json``, whether or not the result files exist."""
    return read_record(StatusRecord, run / STATUS) or StatusRecord()
