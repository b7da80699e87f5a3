"""Leases: at most one process writes a run directory. The lease of a dead process can be taken over.

In the experiment's folder, ``.leases/<run>.json`` names the process that holds the lease, and its token. The process
locks ``.leases/<token>.lock`` until it ends, so the processes of its host see whether it runs. Other hosts rely on its
heartbeat, the time of that file. Every write locks ``.leases/<run>.lock`` and compares the token, so a process that was
suspended while another host took over its lease cannot write afterwards.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.run import StatusRecord, read_status

FOLDER = ".leases"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A process of another host counts as dead if its heartbeat is older than this."""

WATCH_SECONDS = 15.0
"""A lease of another host is taken over only if no heartbeat follows within this time, since clocks differ and jump."""

LOCK_SECONDS = 1.0
"""Timeout for the lock of a run, which the holder of its lease keeps while it writes a file."""

LAYOUT_SECONDS = 600.0
"""Timeout while another process lays out stacks."""


class Holder(TypedDict):
    """The content of a lease file: the process that holds the lease, and its token."""

    token: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    pid: int
    host: str
    boot: str


_HOLDER: TypeAdapter[Holder] = TypeAdapter(Holder)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_open: set[FileIO] = set()


def _close_inherited() -> None:
    """Close the locks of the parent in a forked child, which would hold them after the parent's end."""
    for file in _open:
        file.close()


os.register_at_fork(after_in_child=_close_inherited)


class Busy(HeadToHeadError):
    """Another live process holds the lease."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"run {problem}; wait for that process or end it, then run the same command"
        )


class LeaseLost(Exception):
    """Another process took over the lease; this process must stop without writing."""


class Lease:
    """The right of this process to write run directories of an experiment, until ``release`` or its end.

    The process holds the leases of all ``runs`` or of none. Only one of its threads may enter `held`.
    """

    def __init__(self, *runs: Path) -> None:
        self._runs = sorted(runs)
        self._holder: Holder = {"token": uuid.uuid4().hex, "pid": os.getpid(), **_host()}  # type: ignore[typeddict-item]
        self._alive: FileIO | None = None
        self._released = threading.Event()
        self._lost: Path | None = None
        """A run that another process has leased meanwhile; None if there is none."""

    def __enter__(self) -> Lease:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Acquire the leases, in the order of their names.

        Raises:
            Busy: If a live process holds a lease. The message names run, process and host.
        """
        if not self._runs:
            return
        release_dead(self._runs)
        path = _alive_file(self._runs[0], self._holder)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._alive = path.open("xb", buffering=0)
        _open.add(self._alive)
        try:
            fcntl.flock(self._alive, fcntl.LOCK_EX)
            for run in self._runs:
                with _locked(run):
                    holder = _read(run)
                    if holder is not None:
                        raise Busy(
                            f"'{run.name}' is in use by process {holder['pid']} on {holder['host']}"
                        )
                    # A lease need not survive a power failure, since its holder does not either.
                    files.write_json(_lease_file(run), self._holder, sync=False)
        except BaseException:
            self.release()
            raise
        threading.Thread(
            target=self._beat, args=[self._alive], daemon=True, name="heartbeat"
        ).start()

    def release(self) -> None:
        """Release the leases that this process still holds."""
        self._released.set()
        if self._alive is None:
            return
        for run in self._runs:
            # Without the lock, which the new holder of a lost lease may have.
            if _read(run) == self._holder:
                with _locked(run, timeout=-1):
                    if _read(run) == self._holder:
                        _lease_file(run).unlink()
        _alive_file(self._runs[0], self._holder).unlink(missing_ok=True)
        _open.discard(self._alive)
        self._alive.close()
        self._alive = None

    @contextmanager
    def held(self, run: Path) -> Iterator[None]:
        """Prevent a takeover of the lease of a run during the block, which calls no plugins.

        Raises:
            LeaseLost: If another process has taken over this lease, or as a heartbeat found, another lease of this
                process; the block is not entered.
        """
        with _locked(run, timeout=-1), files.disk_errors():
            lost = self._lost
            if _read(run) != self._holder:
                lost = run
            if lost is not None:
                raise LeaseLost(f"another process took over the lease of a run: '{lost.name}'")
            yield

    def _beat(self, alive: FileIO) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            with suppress(OSError, ValueError):  # closed meanwhile
                os.utime(alive.fileno())
            with suppress(OSError, HeadToHeadError):
                self._find_lost()

    def _find_lost(self) -> None:
        """Keep the first run that another process has leased meanwhile."""
        if self._lost is not None:
            return
        for run in self._runs:
            if _read(run) != self._holder:
                self._lost = run
                return


def release_dead(runs: Sequence[Path]) -> None:
    """Remove the leases of dead processes; all heartbeats of other hosts are watched at the same time."""
    dead = []
    for run in runs:
        holder = _read(run)
        if holder is not None and holder_of(run) is None:
            dead.append((run, holder, _heartbeat(run, holder)))
    if any(beat for _, _, beat in dead):
        time.sleep(WATCH_SECONDS)
    for run, holder, beat in dead:
        with suppress(Busy), _locked(run):
            if _read(run) == holder and _heartbeat(run, holder) == beat:
                _lease_file(run).unlink()
    for run, holder, _ in dead:
        if _read(run) != holder:
            _alive_file(run, holder).unlink(missing_ok=True)


def holder_of(run: Path) -> Holder | None:
    """Return the lease of a run directory if a live process holds it, else None.

    A takeover also waits for a heartbeat.
    """
    holder = _read(run)
    if holder is None:
        return None
    age = abs(time.time() - _heartbeat(run, holder))
    return holder if age < STALE_SECONDS else None


def observe(run: Path) -> StatusRecord:
    """Return a run's status, which is INTERRUPTED if the run is active and no process holds its lease."""
    status = read_status(run)  # INTERRUPTED if a result file is missing
    if status.state in states.ACTIVE and holder_of(run) is None:
        # The holder writes the final state before it releases the lease, so the status is read again.
        status = read_status(run)
        if status.state in states.ACTIVE:
            return status.model_copy(update={"state": states.INTERRUPTED})
    return status


@contextmanager
def layout_lock(experiment: Path) -> Iterator[None]:
    """Hold the lock for laying out, splitting or archiving the experiment's stacks.

    Raises:
        HeadToHeadError: If another process holds the lock for longer than `LAYOUT_SECONDS`.
    """
    problem = f"another process has been laying out the stacks of '{experiment.name}' for {LAYOUT_SECONDS:.0f} s"
    error = HeadToHeadError(f"{problem}; end it, then run the same command")
    with files.locked(experiment / ".layout.lock", LAYOUT_SECONDS, error):
        yield


def _heartbeat(run: Path, holder: Holder) -> float:
    """Return the time of a holder's last heartbeat: of a process of this host now or, if it has ended, 0."""
    with suppress(FileNotFoundError), files.opened(_alive_file(run, holder)) as handle:
        if not _host().items() <= holder.items():
            return os.fstat(handle.fileno()).st_mtime
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return time.time()
    return 0.0


def _host() -> dict[str, str]:
    boot = ""
    if _BOOT_ID.exists():
        boot = _BOOT_ID.read_text().strip()
    return {"host": socket.gethostname(), "boot": boot}


def _locked(run: Path, timeout: float = LOCK_SECONDS) -> AbstractContextManager[None]:
    """Hold the lock of a run, which nested uses in a thread share; raises Busy after ``timeout``."""
    busy = Busy(f"'{run.name}' is being written by another process")
    return files.locked(run.parent / FOLDER / f"{run.name}.lock", timeout, busy)


def _lease_file(run: Path) -> Path:
    return run.parent / FOLDER / f"{run.name}.json"


def _alive_file(run: Path, holder: Holder) -> Path:
    return run.parent / FOLDER / f"{holder['token']}.lock"


def _read(run: Path) -> Holder | None:
    """Return the lease of a run; None if there is none, or it was lost in a power failure."""
    try:
        return _HOLDER.validate_json(files.read_bytes(_lease_file(run)))
    except (FileNotFoundError, ValidationError):
        return None
