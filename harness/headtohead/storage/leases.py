"""Leases: at most one process writes a run directory. The lease of a dead process can be taken over.

Each run has a lease file, ``.leases/<run>.json`` in the experiment's folder, with the identity of its holder and a
token. Every write checks the token while it holds the lock beside that file, so a process that was suspended while
another took over its lease cannot write afterwards.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Annotated

import psutil
from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.record import Number
from headtohead.storage.run import StatusRecord, read_status

FOLDER = ".leases"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A process that cannot be looked up on this machine counts as dead if its heartbeat is older than this."""

WATCH_SECONDS = 15.0
"""A lease with an old heartbeat is taken over only if no heartbeat follows within this time of a steady clock.

Clocks jump, and the clocks of two hosts differ, so the age of a heartbeat alone proves nothing.
"""

START_TOLERANCE = 2.0
"""Tolerance in seconds between two readings of the start time of a process."""

MAX_LEASE_BYTES = 10_000

POLL_SECONDS = 0.1
LOCK_SECONDS = 1.0
"""Timeout for the lock of a lease, which its holder keeps while it writes a file."""

LAYOUT_SECONDS = 600.0
"""Timeout while another process lays out stacks, which includes benchmarks of stack sizes."""


class Holder(TypedDict):
    """The content of a lease file: the process that holds the lease, and its token."""

    token: str
    pid: Annotated[int, Field(strict=True, ge=1, lt=2**31)]
    host: str
    boot: str
    namespace: str
    started: Number | None


_HOLDER: TypeAdapter[Holder] = TypeAdapter(Holder)
_seen: dict[Path, tuple[float, float]] = {}
"""Heartbeats of other hosts by lease file, with the steady time at which this process first saw each."""


class Busy(Exception):
    """Another live process holds the lease."""


class LeaseLost(Exception):
    """Another process took over the lease; this process must stop without writing."""


class Lease:
    """The right of this process to write run directories, until ``release`` or the end of the process.

    Args:
        runs: The run directories. The process holds the leases of all of them or of none. Only one thread of it may
            enter `held`.
    """

    def __init__(self, *runs: Path) -> None:
        self._files = {run: _lease_file(run) for run in sorted(runs)}
        self._token = uuid.uuid4().hex
        self._released = threading.Event()
        self._lost = threading.Event()
        self._entered: set[Path] = set()
        """The runs within a block of `held`; a block inside another one of the same run adds nothing."""

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
        try:
            for file in self._files.values():  # watch all heartbeats at the same time
                _note(file)
            for run in self._files:
                self._acquire(run)
        except BaseException:
            self.release()
            raise
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()

    def release(self) -> None:
        """Release the leases that this process still holds."""
        self._released.set()
        for run, file in self._files.items():
            if self._holds(run):
                with suppress(LeaseLost), self.held(run):
                    file.unlink()

    @contextmanager
    def held(self, *runs: Path) -> Iterator[None]:
        """Prevent a takeover of the leases of ``runs``, or of all leases, during the block, which calls no plugins.

        Raises:
            LeaseLost: If another process has taken over a lease; the block is not entered.
        """
        entered = set(runs or self._files) - self._entered
        with ExitStack() as stack:
            for run in sorted(entered):
                stack.enter_context(_lock(self._files[run]))
                if not self._holds(run):
                    self._lost.set()
                    self.check()
            self._entered |= entered
            stack.callback(self._entered.difference_update, entered)
            stack.enter_context(files.disk_errors())
            yield

    def check(self) -> None:
        """Raise LeaseLost if a write or a heartbeat has detected a takeover."""
        if self._lost.is_set():
            raise LeaseLost("another process took over the lease of a run")

    def _acquire(self, run: Path) -> None:
        file = self._files[run]
        _refuse_held(run)  # without the lock, which a live holder needs for its writes
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with _lock(file).acquire(timeout=LOCK_SECONDS):
                _refuse_held(run)
                record = {"token": self._token, "pid": os.getpid()} | _identity()
                # A lease need not survive a power failure, since its holder does not either.
                files.write_json(file, record | {"started": process_start(os.getpid())}, sync=False)
        except Timeout as error:
            raise Busy(f"'{run.name}' is being written by another process") from error

    def _holds(self, run: Path) -> bool:
        holder, _ = _read(self._files[run])
        return holder is not None and holder["token"] == self._token

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            for run, file in self._files.items():
                if not self._holds(run):
                    if not self._released.is_set():
                        self._lost.set()
                    return
                with suppress(OSError):
                    os.utime(file)


def release_dead(runs: Sequence[Path]) -> None:
    """Remove the leases of dead processes, so that a single watch of all heartbeats precedes the takeovers."""
    dead = [run for run in runs if _lease_file(run).exists() and holder_of(run) is None]
    for run in dead:
        _note(_lease_file(run))
    for run in dead:
        with suppress(Busy), Lease(run):
            pass


def holder_of(run: Path, *, watch: bool = False) -> Holder | None:
    """Return the lease of a run directory if a live process holds it, else None.

    Planning, status, workers, reports and tracking all use this check of liveness. Within the same boot and process
    namespace of a machine, the holder is looked up by process id and start time. A holder on another host, or from
    before a reboot, counts as alive while its heartbeat is at most ``STALE_SECONDS`` old.

    Args:
        run: The run directory.
        watch: Whether to watch an old heartbeat for `WATCH_SECONDS`, as every takeover does; it is alive if it changes.
    """
    file = _lease_file(run)
    holder, beat = _read(file)
    if holder is None:
        return None
    if _identity().items() <= holder.items():
        now, then = process_start(holder["pid"]), holder["started"]
        alive = now is not None and then is not None and abs(now - then) < START_TOLERANCE
    else:
        alive = abs(time.time() - beat) < STALE_SECONDS or (watch and _beats(file))
    return holder if alive else None


def _beats(file: Path) -> bool:
    """Return whether the heartbeat of a lease changes until `WATCH_SECONDS` after this process first saw it."""
    beat, since = _note(file)
    while beat and time.monotonic() - since < WATCH_SECONDS:
        time.sleep(POLL_SECONDS)
        now, _ = _note(file)
        if now != beat:
            return now != 0.0
    return False


def _note(file: Path) -> tuple[float, float]:
    """Return the heartbeat of a lease, 0.0 without a lease, and the steady time when this process first saw it."""
    beat = _read(file)[1]
    if file not in _seen or _seen[file][0] != beat:
        _seen[file] = (beat, time.monotonic())
    return _seen[file]


def observe(run: Path) -> tuple[StatusRecord, str]:
    """Return a run's status and its state, which is INTERRUPTED if the run is active and no process holds its lease.

    Raises:
        HeadToHeadError: If ``status.json`` is damaged.
    """
    status = read_status(run)  # INTERRUPTED if a result file is missing
    if status.state in states.ACTIVE and holder_of(run) is None:
        # The holder writes the final state before it releases the lease, so the status is read again.
        status = read_status(run)
        if status.state in states.ACTIVE:
            return status, states.INTERRUPTED
    return status, status.state


@contextmanager
def layout_lock(experiment: Path) -> Iterator[None]:
    """Hold the lock for laying out, splitting or archiving the experiment's stacks.

    Raises:
        HeadToHeadError: If another process holds the lock for longer than `LAYOUT_SECONDS`.
    """
    try:
        with FileLock(experiment / ".layout.lock").acquire(timeout=LAYOUT_SECONDS):
            yield
    except Timeout as error:
        raise HeadToHeadError(
            f"another process has been laying out the stacks of '{experiment.name}' for "
            f"{LAYOUT_SECONDS:.0f} s; end it, then run the same command"
        ) from error


@contextmanager
def refuse_busy() -> Iterator[None]:
    """Convert Busy to the error for a run that another process writes."""
    try:
        yield
    except Busy as error:
        raise HeadToHeadError(f"run {error}; wait for that process or end it, then run the same command") from error


def process_start(pid: int) -> float | None:
    """Return the start time of a process of this machine in seconds since boot; None if it has ended."""
    try:
        boot: float = psutil.boot_time()  # read first, so that the difference does not depend on the clock
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return round(float(process.create_time()) - boot, 2)
    except psutil.NoSuchProcess:
        return None


def _identity() -> dict[str, str]:
    """Return host, boot and process namespace, within which process ids are unique."""
    return {"host": socket.gethostname()} | _boot()


@cache
def _boot() -> dict[str, str]:
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    return {
        "boot": boot.read_text().strip() if boot.exists() else str(int(psutil.boot_time())),
        "namespace": os.readlink(namespace) if namespace.is_symlink() else "",
    }


def _lock(file: Path) -> FileLock:
    """Return the lock of a lease file; nested uses in a thread share it."""
    return FileLock(file.with_suffix(".lock"), is_singleton=True)


def _lease_file(run: Path) -> Path:
    return run.parent / FOLDER / f"{run.name}.json"


def _read(file: Path) -> tuple[Holder | None, float]:
    """Return a lease and the time of its last heartbeat; None if there is no lease or the file is damaged."""
    try:
        # A single handle, because another process may replace the file between reading content and time.
        with files.opened(file) as handle:
            holder = _HOLDER.validate_json(handle.read(MAX_LEASE_BYTES))
            return holder, os.fstat(handle.fileno()).st_mtime
    except (FileNotFoundError, ValidationError):  # not written yet, or lost in a power failure
        return None, 0.0


def _refuse_held(run: Path) -> None:
    holder = holder_of(run, watch=True)
    if holder is not None:
        raise Busy(f"'{run.name}' is in use by process {holder['pid']} on {holder['host']}")
