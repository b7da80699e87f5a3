"""The sender's side of a stack that is trained on another machine: folder token, leases, and received files."""

from __future__ import annotations

import hashlib
import json
import signal
import uuid
from pathlib import Path

from headtohead import files
from headtohead.data import cache_root, prepared_file
from headtohead.execution import stack_archive
from headtohead.execution.remote import Message, RemoteJob, code_version
from headtohead.execution.stack_archive import FOLDER_TOKEN
from headtohead.plugins.launcher import Exit, Job
from headtohead.schema.run_config import RunConfig
from headtohead.storage import exits
from headtohead.storage.leases import Busy, Lease, LeaseLost
from headtohead.storage.stack import StackFolder


class Transfer:
    """A job on another machine, from its start to ``close``."""

    def __init__(self, job: Job, device: str, save_seconds: float = 600.0, *, fresh: bool = True) -> None:
        """Write a token into the stack's folder; without ``fresh``, keep the token of a job that is still running."""
        self.job = job
        self.lease: Lease | None = None
        folder_token, file = uuid.uuid4().hex, job.stack / FOLDER_TOKEN
        if fresh or not file.exists():
            files.write_text(file, folder_token)
        else:
            folder_token = file.read_text()
        self.remote = RemoteJob(
            str(job.stack.resolve()), device, folder_token, code_version(), save_seconds, job.plugins
        )

    @staticmethod
    def exchange_folder(job: Job) -> Path:
        """Return the folder for pickles that a launcher exchanges with its jobs.

        It is in the user's cache, because unpickling a file from an untrusted runs folder could execute any code.
        """
        study = hashlib.sha256(str(job.stack.parent.resolve()).encode()).hexdigest()[:16]
        folder = cache_root() / "launchers" / study
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def leased(self) -> bool:
        """Acquire the leases of the runs for a copy of the stack; return False if another process holds a lease.

        A worker with access to the folder acquires the leases itself.
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
        """Return the archive of the stack, without the prepared data."""
        return stack_archive.pack(self.job.stack)

    @property
    def data(self) -> str:
        """A string that is equal for stacks with the same prepared data."""
        record = StackFolder(self.job.stack).record
        return json.dumps([record.cache, record.config["data"]], sort_keys=True)

    def read_data(self) -> bytes:
        """Return the content of the file of prepared data."""
        record = StackFolder(self.job.stack).record
        config = RunConfig.model_validate(record.config)
        return prepared_file(config.data, Path(record.cache)).read_bytes()

    def receive(self, message: Message) -> Exit | None:
        """Write the files of a message; return the end of the job if this was the last message.

        If another process has taken over a lease, nothing is written and the job ends as BUSY.
        """
        if message.archive and self.lease is not None:
            try:
                with self.lease.held():
                    stack_archive.put_back(message.archive, self.job.stack, ended=message.kind == "exit")
            except LeaseLost:
                return self.busy()
        return self.ended(message.code) if message.kind == "exit" else None

    def ended(self, code: int) -> Exit:
        """Return the exit of the worker."""
        return Exit(self.job, code)

    def busy(self) -> Exit:
        """Return the exit of a job that another process trains."""
        return Exit(self.job, exits.BUSY)

    def failed(self, reason: str) -> Exit:
        """Log the reason and return the exit of a failed job."""
        return self._log_exit(reason, exits.FAILED)

    def lost(self, reason: str) -> Exit:
        """Log the reason and return the exit of a job with a lost machine or process."""
        return self._log_exit(reason, -signal.SIGKILL)

    def _log_exit(self, reason: str, code: int) -> Exit:
        with (self.job.stack / "worker.log").open("a", encoding="utf-8") as log:
            log.write(" ".join(reason.split()) + "\n")
        return Exit(self.job, code)

    def close(self) -> None:
        """Release the leases and remove the folder token."""
        if self.lease is not None:
            self.lease.release()
            self.lease = None
        (self.job.stack / FOLDER_TOKEN).unlink(missing_ok=True)
