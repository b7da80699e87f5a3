"""Leases: at most one process writes a run directory, and the lease of a dead process passes on.

Each run has a lease file, ``.leases/<run>.json`` in the experiment's folder, with the identity of
its holder and a token. Every write checks the token while it holds the lock beside that file. So a
process that was suspended while another took its lease over cannot write afterwards.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from headtohead import files
from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.records import StatusRecord, read_status

FOLDER = ".leases"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A process that cannot be looked up here is dead when its heartbeat is older than this."""

START_TOLERANCE = 2.0
"""Seconds by which two readings of one process's start may differ."""

LOCK_SECONDS = 1.0
"""How long to wait for the lock of a lease; its holder may be writing a file."""

LAYOUT_SECONDS = 600.0
"""How long to wait while another process lays out stacks; it may be timing stack sizes."""


class Busy(Exception):
    """Another live process holds the lease."""


class LeaseLost(Exception):
    """Another process took the lease over; this process must stop without writing."""


class Lease:
    """The right of this process to write run directories, until ``release`` or its death.

    Args:
        runs: The run directories. The process holds the leases of all of them or of none.
    """

    def __init__(self, *runs: Path) -> None:
        self._files = {run: _lease_file(run) for run in sorted(runs)}
        self._token = uuid.uuid4().hex
        self._released = threading.Event()
        self._lost = threading.Event()

    def __enter__(self) -> Lease:
        self.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def acquire(self) -> None:
        """Acquire the leases, in the order of their names.

        Raises:
            Busy: If a live process holds one of them. The message names the run, process and host.
        """
        try:
            for run in self._files:
                self._acquire(run)
        except BaseException:
            self.release()
            raise
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()

    def release(self) -> None:
        """Give back the leases that are still held."""
        self._released.set()
        for run, file in self._files.items():
            if self._holds(run):
                with suppress(LeaseLost), self.held(run):
                    file.unlink()

    @contextmanager
    def held(self, *runs: Path) -> Iterator[None]:
        """Keep the leases of ``runs``, or all, from being taken over during the block.

        Raises:
            LeaseLost: If another process took one of them over; the block is not entered.
        """
        with ExitStack() as stack:
            for run in sorted(runs) or self._files:
                stack.enter_context(_lock(self._files[run]))
                if not self._holds(run):
                    self._lost.set()
                    self.check()
            yield

    def check(self) -> None:
        """Raise LeaseLost if a write or a heartbeat has found a lease in other hands."""
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
                # A lease need not survive a power failure: neither does its holder.
                files.write_json(file, record | {"started": process_start(os.getpid())}, sync=False)
        except Timeout as error:
            raise Busy(f"'{run.name}' is being written by another process") from error

    def _holds(self, run: Path) -> bool:
        holder, _ = _read(self._files[run])
        return holder.get("token") == self._token

    def _beat(self) -> None:
        while not self._released.wait(HEARTBEAT_SECONDS):
            for run, file in self._files.items():
                if not self._holds(run):
                    if not self._released.is_set():
                        self._lost.set()
                    return
                with suppress(OSError):
                    os.utime(file)


def holder_of(run: Path) -> dict[str, Any] | None:
    """Return the lease of a run directory if a live process holds it, else None.

    The only check of liveness: planning, status, workers, reports and tracking use it. Within one
    boot and process namespace of one machine, the process is looked up by its id and start time. A
    holder on another host, or from before a restart, counts as alive while its heartbeat is at most
    ``STALE_SECONDS`` old.
    """
    holder, beat = _read(_lease_file(run))
    if not holder:
        return None
    if _identity().items() <= holder.items():
        started = process_start(holder["pid"])
        alive = started is not None and abs(started - holder["started"]) < START_TOLERANCE
    else:
        alive = time.time() - beat < STALE_SECONDS
    return holder if alive else None


def observe(run: Path) -> tuple[StatusRecord, str]:
    """Return a run's status and its state; the state is INTERRUPTED if no process holds its lease any more.

    Raises:
        HeadToHeadError: If ``status.json`` is damaged.
    """
    status = read_status(run)
    if status.state in states.ACTIVE and holder_of(run) is None:
        # The holder writes the final state before it releases the lease, so the status is read again.
        status = read_status(run)
        if status.state in states.ACTIVE:
            return status, states.INTERRUPTED
    return status, status.state


@contextmanager
def layout_lock(experiment: Path) -> Iterator[None]:
    """Keep other processes from laying out, splitting or archiving the experiment's stacks.

    Raises:
        HeadToHeadError: If another process keeps the lock.
    """
    try:
        with FileLock(experiment / ".layout.lock").acquire(timeout=LAYOUT_SECONDS):
            yield
    except Timeout as error:
        raise HeadToHeadError(
            f"another process has been laying out the stacks of '{experiment.name}' for "
            f"{LAYOUT_SECONDS:.0f} s; end it, then run the same command"
        ) from error


def process_start(pid: int) -> float | None:
    """Return when a process of this machine started, in seconds since boot; None if it is gone."""
    try:
        boot: float = psutil.boot_time()  # first: the difference then does not depend on the clock
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return round(float(process.create_time()) - boot, 2)
    except psutil.NoSuchProcess:
        return None


def _identity() -> dict[str, str]:
    """Return the host, boot and process namespace: where they are equal, process ids are too."""
    return {"host": socket.gethostname()} | _boot()


@cache
def _boot() -> dict[str, str]:
    boot, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    return {
        "boot": boot.read_text().strip() if boot.exists() else str(int(psutil.boot_time())),
        "namespace": os.readlink(namespace) if namespace.is_symlink() else "",
    }


def _lock(file: Path) -> FileLock:
    """Return the lock of a lease file; nested uses in one thread share it."""
    return FileLock(file.with_suffix(".lock"), is_singleton=True)


def _lease_file(run: Path) -> Path:
    return run.parent / FOLDER / f"{run.name}.json"


def _read(file: Path) -> tuple[dict[str, Any], float]:
    """Return a lease and the time of its last heartbeat; an empty one where there is none."""
    try:
        # One handle: content and time must be those of the same file, which another process may replace meanwhile.
        with file.open(encoding="utf-8") as handle:
            holder: dict[str, Any] = json.load(handle)
            return holder, os.fstat(handle.fileno()).st_mtime
    except (FileNotFoundError, ValueError):  # not a lease yet, or lost in a power failure
        return {}, 0.0


def _refuse_held(run: Path) -> None:
    holder = holder_of(run)
    if holder is not None:
        raise Busy(f"'{run.name}' is in use by process {holder['pid']} on {holder['host']}")
