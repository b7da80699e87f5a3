"""Claims: at most one live process works on a stack, and a dead one's claim is taken over."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from headtohead.runs import files

HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A claim of another host without a heartbeat for this long is taken for dead."""


class Busy(Exception):
    """Another live process holds the claim."""


def boot_id() -> str:
    """Return what tells this start of the machine from an earlier one."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text().strip() if path.exists() else str(int(psutil.boot_time()))


class Claim:
    """The right to work in a folder, held by this process until ``release`` or its death."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "claim.json"
        self.token = f"{socket.gethostname()}/{os.getpid()}/{time.time_ns()}"
        self._stop = threading.Event()

    def acquire(self) -> None:
        """Take the claim.

        Raises:
            Busy: If a live process holds it; the message names host and pid.
        """
        with FileLock(self.path.with_suffix(".lock")):
            holder = read_claim(self.path.parent)
            if holder is not None and is_alive(holder, self.path):
                raise Busy(f"process {holder['pid']} on {holder['host']}")
            files.write_json(self.path, {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "started": psutil.Process().create_time(),
                "boot": boot_id(),
                "token": self.token,
            })  # fmt: skip
        threading.Thread(target=self._beat, daemon=True, name="heartbeat").start()

    def release(self) -> None:
        """Give the claim back, if it is still this process's."""
        self._stop.set()
        with FileLock(self.path.with_suffix(".lock")):
            holder = read_claim(self.path.parent)
            if holder is not None and holder["token"] == self.token:
                self.path.unlink()

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            try:
                os.utime(self.path)
            except FileNotFoundError:
                return


def read_claim(folder: Path) -> dict[str, Any] | None:
    """Return the claim on a folder, or None."""
    try:
        claim: dict[str, Any] = files.read_json(folder / "claim.json")
    except FileNotFoundError:
        return None
    return claim


def is_alive(holder: dict[str, Any], path: Path) -> bool:
    """Tell whether the process that made a claim still lives."""
    if holder["host"] != socket.gethostname():
        return time.time() - path.stat().st_mtime < STALE_SECONDS
    if holder["boot"] != boot_id():
        return False
    try:
        process = psutil.Process(holder["pid"])
        same = abs(process.create_time() - holder["started"]) < 2.0
        return bool(same and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
