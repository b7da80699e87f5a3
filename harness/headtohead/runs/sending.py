"""The sender's side of a stack that is trained elsewhere: its mark, its claim, its way back."""

from __future__ import annotations

import json
import signal
import uuid
from pathlib import Path

from headtohead.data import prepared_file
from headtohead.experiment.schema import RunConfig
from headtohead.families.launcher import Exit, Job
from headtohead.runs import exits, files, parcel
from headtohead.runs.claims import Busy, Claim
from headtohead.runs.remote import MARK, Message, RemoteJob, code_mark
from headtohead.runs.stack import StackFolder


class Sending:
    """One job that is sent to another machine, from its start to ``close``."""

    def __init__(
        self, job: Job, device: str, save_seconds: float = 600.0, *, fresh: bool = True
    ) -> None:
        """Leave a mark in the stack's folder; not ``fresh``: one was sent before, with its mark."""
        self.job = job
        self.claim: Claim | None = None
        mark, place = uuid.uuid4().hex, job.stack / MARK
        if fresh or not place.exists():
            files.write_text(place, mark)
        else:
            mark = place.read_text()
        self.remote = RemoteJob(str(job.stack.resolve()), device, mark, code_mark(), save_seconds)

    def claimed(self) -> bool:
        """Claim the stack for a copy of it; False if another process is at work on it.

        A worker that sees the folder claims it itself. A copy cannot, so its sender does.
        """
        if self.claim is None:
            claim = Claim(self.job.stack)
            try:
                claim.acquire()
            except Busy:
                return False
            self.claim = claim
        return True

    def pack(self) -> bytes:
        """Return what a machine without the folder needs, but for the prepared data."""
        return parcel.pack(self.job.stack)

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

    def receive(self, message: Message) -> None:
        """Put in place what a copy sent home."""
        if message.parcel and self.claim is not None:
            parcel.put_back(message.parcel, self.job.stack, ended=message.kind == "exit")

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
        """Give the claim back and take the mark away."""
        if self.claim is not None:
            self.claim.release()
            self.claim = None
        (self.job.stack / MARK).unlink(missing_ok=True)
