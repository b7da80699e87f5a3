"""Reading and writing of a run directory. Only `RunWriter`, which requires the run's lease, writes it."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pydantic import TypeAdapter, ValidationError

from headtohead import files
from headtohead.config.loading import SWEEP_LABEL, experiment_name
from headtohead.config.project import next_command
from headtohead.errors import HeadToHeadError, shown_path, similar
from headtohead.storage import states
from headtohead.storage.experiment import EXPERIMENT, ExperimentRecord
from headtohead.storage.leases import Lease
from headtohead.storage.metrics import derived
from headtohead.storage.paths import checked_path
from headtohead.storage.record import parse_record, read_record, required_record
from headtohead.storage.results import HeadsRecord, MetricLine, ResultsRecord
from headtohead.storage.run import (
    EARLIER_ATTEMPT,
    HEADS,
    METRICS,
    RESULT_FILES,
    RESULTS,
    RUN,
    RUN_FILES,
    STATUS,
    RunRecord,
    StatusRecord,
    read_status,
    stored_status,
)

R = TypeVar("R")
_LINE = TypeAdapter(MetricLine)


def now() -> str:
    """Return the current UTC time in ISO 8601 format with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class RunDirectory:
    """Reader of a run directory; all methods raise HeadToHeadError if a file is missing or damaged."""

    path: Path
    observed_status: StatusRecord | None = field(default=None, kw_only=True)

    @property
    def status(self) -> StatusRecord:
        """The content of status.json; a run without this file is PLANNED."""
        return self.observed_status or read_status(self.path)

    @property
    def state(self) -> str:
        """The run's state in status.json."""
        return self.status.state

    @property
    def record(self) -> RunRecord:
        """The content of run.json."""
        return required_record(RunRecord, self.path / RUN, "pass the directory of a run")

    @property
    def results(self) -> ResultsRecord | None:
        """The content of results.json; None before the run is DONE."""
        return self.verified_record(ResultsRecord, RESULTS) if self.state == states.DONE else None

    @property
    def heads(self) -> HeadsRecord | None:
        """The content of heads.json; None if there is no such file."""
        return self.verified_record(HeadsRecord, HEADS) if self.has(HEADS) else None

    @property
    def final_metrics(self) -> dict[str, float | None]:
        """The metrics of results.json, those derived from its counts, and heads.json; empty before the run is DONE."""
        return merged_metrics(self.results, self.heads)

    def history(self) -> Iterator[MetricLine | None]:
        """Yield the lines of metrics.jsonl, and None for a damaged line; a missing file has no lines.

        A crash leaves an incomplete line. A line with a wrong type or a value outside the range of its metric is
        damaged too. The history of a finished run is compared with its sha256.
        """
        content = b""
        with suppress(FileNotFoundError):
            if self.has(METRICS):
                content = self._verified_content(METRICS, files.LARGE_BYTES)
            else:
                content = files.read_bytes(self.path / METRICS, files.LARGE_BYTES)
        for line in filter(bytes.strip, content.split(b"\n")):
            try:
                yield _LINE.validate_json(line)
            except ValidationError:
                yield None

    def has(self, name: str) -> bool:
        """Return whether the run has a result file of this name."""
        return name in self.status.files

    def verified(self, name: str) -> Path:
        """Return the path of a result file after comparing its sha256 with that in status.json."""
        if damage := self._damage(name, self.status.files):
            raise HeadToHeadError(f"'{self.path / name}' {damage}; {_repair(self.path, name)}")
        return self.path / name

    def verified_record(self, kind: type[R], name: str) -> R:
        """Return the record in a JSON result file after comparing its sha256 with that in status.json."""
        return parse_record(kind, self._verified_content(name), self.path / name)

    def _verified_content(self, name: str, max_bytes: int = files.MAX_BYTES) -> bytes:
        """Return the content of a file after comparing its sha256 with that in status.json, and read it once."""
        recorded = self.status.files.get(name)
        path = checked_path(self.path, name)
        content = files.read_bytes(path, max_bytes) if path.is_file() else b""
        if hashlib.sha256(content).hexdigest() == recorded:
            return content
        return files.read_bytes(self.verified(name), max_bytes)

    def require_done(self) -> None:
        """Check that the run is DONE; the error names the missing file of a finished run."""
        status = self.status
        if status.state == states.INTERRUPTED:
            raise HeadToHeadError(
                f"run '{self.path.name}': {status.reason}; {_repair(self.path, RESULTS)}"
            )
        if status.state != states.DONE:
            command = "h2h run"
            if status.state == states.DIVERGED:
                command = "h2h run --fresh"
            raise HeadToHeadError(
                f"run '{self.path.name}' is {status.state}, not DONE; finish it with {command}"
            )

    def damaged_files(self) -> dict[str, str]:
        """Return the damage of each damaged or missing file by name; empty for a run that is not finished."""
        status = stored_status(self.path)
        names = {*status.files}
        if status.state in states.RESULTS:
            names.add(RUN)
        if status.state == states.DONE:
            names.add(RESULTS)
        damages = {}
        for name in sorted(names):
            damage = self._damage(name, status.files)
            if damage is not None:
                damages[name] = damage
        return damages

    def _damage(self, name: str, recorded: Mapping[str, str]) -> str | None:
        """Return how a result file is damaged, or None."""
        path = checked_path(self.path, name)
        if name not in recorded:
            return f"has no sha256 in {STATUS}"
        if not path.is_file():
            return "is missing"
        if path.stat().st_size > psutil.virtual_memory().total:
            return "is larger than the memory of this machine"
        try:
            is_intact = files.sha256(path) == recorded[name]
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        return None if is_intact else f"is damaged: its sha256 is not that in {STATUS}"


@dataclass(frozen=True)
class RunWriter(RunDirectory):
    """Writer of a run directory.

    Every write checks the lease and prevents a takeover until it is complete. All methods raise LeaseLost if another
    process has taken over the lease.
    """

    lease: Lease

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the directory for other writes, under the lease."""
        with self.lease.held(self.path):
            yield self.path

    def write_json(self, name: str, value: Any) -> None:
        """Replace a JSON file of the directory."""
        with self.writing() as folder:
            files.write_json(folder / name, value)

    def plan(self, record: RunRecord) -> None:
        """Create the directory and the record of a PLANNED run; a finished run without its record is planned anew."""
        with self.writing() as folder:
            (folder / "attempts").mkdir(parents=True, exist_ok=True)
            files.write_json(folder / RUN, record.to_json())
            if not (folder / STATUS).exists() or stored_status(folder).state in states.RESULTS:
                self.set_state(states.PLANNED)

    def set_state(self, state: str, **fields: Any) -> None:
        """Change the state and the given fields of status.json; other fields keep their values.

        For a finished run, ``files`` gets the sha256 of every file; all of them have been written before.
        """
        with self.writing() as folder:
            changes: dict[str, Any] = {
                "state": state,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "files": {},
            }
            if state in states.RESULTS:
                changes["files"] = checksums(folder)
            changes |= fields
            if state in states.FINAL or state == states.KILLED:
                changes["ended"] = now()
            self._change_status(**changes)

    def _change_status(self, **changes: Any) -> None:
        """Change fields of status.json, in a block of `writing`."""
        status = stored_status(self.path).model_copy(update=changes)
        files.write_json(self.path / STATUS, status.to_json())

    def begin_attempt(self, state: str = states.LEASED, **fields: Any) -> None:
        """Start the next attempt: save the status of the previous one in ``attempts/`` and remove its result files."""
        with self.writing() as folder:
            files.remove_leftovers(folder)
            # The reason of a DONE run without one of its files.
            status = stored_status(folder).model_copy(update={"reason": self.status.reason})
            for name in RESULT_FILES:
                (folder / name).unlink(missing_ok=True)
            if status.attempt and status.state in states.ACTIVE:
                # The process of that attempt died or lost the lease before it wrote a final state.
                changes = {"state": states.KILLED, "reason": "the process died", "ended": now()}
                status = status.model_copy(update=changes)
            if status.attempt:
                self.write_json(f"attempts/{status.attempt}.json", status.to_json())
            self.set_state(
                state,
                attempt=status.attempt + 1,
                ended=None,
                reason=None,
                signature=None,
                started=status.started or now(),
                **fields,
            )

    def archive_metrics(self) -> None:
        """Move the histories of a failed attempt into ``attempts/``, since the next attempt begins at step 0."""
        with self.writing() as folder:
            if (folder / METRICS).exists():
                attempts = folder / "attempts"
                attempts.mkdir(exist_ok=True)
                attempt = stored_status(folder).attempt
                (folder / METRICS).replace(attempts / f"{attempt}.{METRICS}")

    def log_metrics(
        self, step: int, epoch: float, time: float, values: Mapping[str, float]
    ) -> None:
        """Append a line to metrics.jsonl; ``time`` in seconds since 1970."""
        record = {"step": step, "epoch": round(epoch, 4), "time": time, "values": dict(values)}
        with self.writing() as folder:
            files.append_lines(folder / METRICS, [record])

    def finish(self, results: ResultsRecord, step: int | None = None) -> None:
        """Write the results, then the state DONE with the last step and the sha256 of all files.

        The other result files have been written before.
        """
        with self.writing():
            self.write_json(RESULTS, results.to_json())
            self.set_state(states.DONE, **({} if step is None else {"step": step}))

    def add_result(self, name: str, value: Any) -> None:
        """Write or replace a JSON file with results of a DONE run, and its sha256."""
        with self.writing() as folder:
            # After a crash before the last write, the run has no such file.
            others = self.remove_result(name)
            self.write_json(name, value)
            self._change_status(files={**others, name: files.sha256(folder / name)})

    def remove_result(self, name: str) -> dict[str, str]:
        """Remove a result file and its sha256; return the sha256 of the other files."""
        with self.writing() as folder:
            others = dict(stored_status(folder).files)
            others.pop(name, None)
            self._change_status(files=others)
            (folder / name).unlink(missing_ok=True)
            return others


def merged_metrics(
    results: ResultsRecord | None, heads: HeadsRecord | None
) -> dict[str, float | None]:
    """Return the metrics of the results, those derived from their counts, and those of masked heads."""
    metrics: dict[str, float | None] = {}
    if results is not None:
        metrics |= derived(results.buckets)
        metrics |= results.metrics
    if heads is not None:
        metrics |= heads["metrics"]
    return metrics


def checksums(run: Path) -> dict[str, str]:
    """Return the sha256 of the existing files of a run directory by name, without its status and tracker records."""
    names = [*RUN_FILES]
    for path in sorted(run.glob("attempts/*")):
        name = path.relative_to(run).as_posix()
        if re.fullmatch(EARLIER_ATTEMPT, name):
            names.append(name)
    return {name: files.sha256(run / name) for name in names if (run / name).is_file()}


def _repair(run: Path, name: str) -> str:
    """Return the advice for a damaged result file."""
    if name == HEADS:
        return f"h2h ablate-heads {run.name} --fresh writes it anew"
    experiment = None
    with suppress(HeadToHeadError):
        experiment = read_record(ExperimentRecord, run.parent / EXPERIMENT)
    if experiment is None or experiment.file is None:
        return "h2h run FILE --repair retrains the run; delete an imported run and import it again"
    runs = run.parent.parent
    file = runs.parent / experiment.file
    shown_file = shown_path(file) if file.is_file() else experiment.file
    command = next_command("run", shown_file, runs)
    label = experiment.name.removeprefix(experiment_name(file))
    label = label.removesuffix(f"-{SWEEP_LABEL}").removeprefix("-")
    if label:
        command += f" --name {shlex.quote(label)}"
    return f"{command} --repair retrains the run"


@contextmanager
def leased(run: Path) -> Iterator[RunWriter]:
    """Hold a run's lease for the writes of a block; raise Busy if a live process holds it."""
    with Lease(run) as lease:
        yield RunWriter(run, lease)


def find_run(run: Path | str, runs: Path) -> Path:
    """Return the directory of a run that is given as a path, a name, or an unambiguous prefix of a name.

    ``EXPERIMENT/`` before the name or prefix restricts the search to the runs of an experiment.

    Raises:
        HeadToHeadError: If no run or several runs match, or a symbolic link leads to the run.
    """
    path = Path(run)
    if (path / RUN).is_file():
        return path
    experiment = None
    name = str(path)
    if len(path.parts) == 2 and not path.is_absolute():
        experiment, name = path.parts
    folders = glob.escape(experiment) if experiment else "*"
    directories = sorted(record.parent for record in runs.glob(f"{folders}/*/{RUN}"))
    matching = [directory for directory in directories if directory.name == name]
    if not matching:
        matching = [directory for directory in directories if directory.name.startswith(name)]
    if len(matching) == 1:
        return checked_path(runs, matching[0].relative_to(runs))
    if matching:
        first, second = (f"{directory.parent.name}/{directory.name}" for directory in matching[:2])
        raise HeadToHeadError(
            f"'{run}' matches {len(matching)} runs, for example {first} and {second}; "
            "use a longer prefix, or EXPERIMENT/ before it"
        )
    if path.suffix in (".yaml", ".yml") or (runs / path.name / EXPERIMENT).is_file():
        hint = f"; it is an experiment, and {next_command('status', run, runs)} lists its runs"
    else:
        names = [directory.name for directory in directories]
        names += [name.rpartition("-")[0] for name in names]
        hint = similar(name, names)
    if not hint:
        hint = "; h2h list names the experiments, and h2h status EXPERIMENT their runs"
    raise HeadToHeadError(f"no run '{run}' in '{runs}'{hint}")
