"""The sender's side of a stack that is trained elsewhere: its mark, its leases, its way back."""

from __future__ import annotations

import hashlib
import json
import signal
import uuid
from pathlib import Path

from headtohead import files
from headtohead.data import cache_root, prepared_file
from headtohead.execution import stack_archive
from headtohead.execution.remote import MARK, Message, RemoteJob, code_mark
from headtohead.plugins.launcher import Exit, Job
from headtohead.schema.run_config import RunConfig
from headtohead.storage import exits
from headtohead.storage.leases import Busy, Lease, LeaseLost
from headtohead.storage.stack import StackFolder


class Transfer:
    """One job that is sent to another machine, from its start to ``close``."""

    def __init__(self, job: Job, device: str, save_seconds: float = 600.0, *, fresh: bool = True) -> None:
        """Leave a mark in the stack's folder; not ``fresh``: one was sent before, with its mark."""
        self.job = job
        self.lease: Lease | None = None
        mark, place = uuid.uuid4().hex, job.stack / MARK
        if fresh or not place.exists():
            files.write_text(place, mark)
        else:
            mark = place.read_text()
        self.remote = RemoteJob(str(job.stack.resolve()), device, mark, code_mark(), save_seconds, job.plugins)

    @staticmethod
    def exchange_folder(job: Job) -> Path:
        """Return the folder for pickles that a launcher exchanges with its jobs.

        It lies in the user's cache: loading a pickle from the study would execute what whoever
        wrote the study put there.
        """
        study = hashlib.sha256(str(job.stack.parent.resolve()).encode()).hexdigest()[:16]
        folder = cache_root() / "launchers" / study
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def leased(self) -> bool:
        """Lease the runs for a copy of the stack; False if another process trains one of them.

        A worker that sees the folder leases them itself. A copy cannot, so its sender does.
        """
        if self.lease is None:
            lease = Lease(*(run.path for run in StackFolder(self.job.stack).runs()))
            try:
                lease.acquire()
            except Busy:
                return False
            self.lease = lease
        return True

    def pack(self) -> bytes:
        """Return what a machine without the folder needs, but for the prepared data."""
        return stack_archive.pack(self.job.stack)

    @property
    def data(self) -> str:
        """What the prepared data depend on: equal for stacks that share them."""
        record = StackFolder(self.job.stack).record
        return json.dumps([record.cache, record.config["data"]], sort_keys=True)

    def read_data(self) -> bytes:
        """Return the file of the prepared data."""
        record = StackFolder(self.job.stack).record
        config = RunConfig.model_validate(record.config)
        return prepared_file(config.data, Path(record.cache)).read_bytes()

    def receive(self, message: Message) -> Exit | None:
        """Put in place what a copy sent; return the end of the job if this was the last message.

        If another process took the leases over meanwhile, nothing is written and the job is busy.
        """
        if message.archive and self.lease is not None:
            try:
                with self.lease.held():
                    stack_archive.put_back(message.archive, self.job.stack, ended=message.kind == "exit")
            except LeaseLost:
                return self.busy()
        return self.ended(message.code) if message.kind == "exit" else None

    def ended(self, code: int) -> Exit:
        """Return the end of the worker."""
        return Exit(self.job, code)

    def busy(self) -> Exit:
        """Return the end of a job that another process is at work on."""
        return Exit(self.job, exits.BUSY)

    def failed(self, reason: str) -> Exit:
        """Return the end of a job that could not be trained there, and note why."""
        return self._noted(reason, exits.FAILED)

    def lost(self, reason: str) -> Exit:
        """Return the end of a job whose machine or process is gone, and note why."""
        return self._noted(reason, -signal.SIGKILL)

    def _noted(self, reason: str, code: int) -> Exit:
        with (self.job.stack / "worker.log").open("a", encoding="utf-8") as log:
            log.write(" ".join(reason.split()) + "\n")
        return Exit(self.job, code)

    def close(self) -> None:
        """Release the leases and remove the mark."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None
        (self.job.stack / MARK).unlink(missing_ok=True)
