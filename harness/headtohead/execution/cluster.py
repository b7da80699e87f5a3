"""Training of stacks on other machines that share the runs folder.

Launchers for clusters differ only in how they start ``RemoteJob.train`` on another machine and detect its end.
"""

from __future__ import annotations

import hashlib
import importlib
import signal
import socket
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.config.versions import versions
from headtohead.data import cache_root
from headtohead.errors import HeadToHeadError
from headtohead.execution.local import LocalLauncher, no_gpu
from headtohead.planning.stacking import processors
from headtohead.plugins.launcher import Exit, Job, Launcher, WorkerPlugins
from headtohead.plugins.registry import BUILT_IN
from headtohead.storage import exits

POLL_SECONDS = 0.2

BATCH = 1000
"""Maximum number of jobs that are submitted together; Slurm's default limit of an array is 1001."""

FOLDER_TOKEN = "folder-token"
"""File in a stack's folder with a random token, by which another machine verifies that it is the same folder."""


@dataclass(frozen=True)
class RemoteJob:
    """A stack to train on another machine, as it is sent there."""

    stack: Path
    device: str
    token: str
    code: str
    plugins: WorkerPlugins = field(default_factory=WorkerPlugins)

    @classmethod
    def of(cls, job: Job) -> RemoteJob:
        """Write a token into the stack's folder and return the job to send."""
        token = uuid.uuid4().hex
        files.write_text(job.stack / FOLDER_TOKEN, token)
        return cls(job.stack.resolve(), job.device, token, code_version(), job.plugins)

    def train(self) -> int | str:
        """Train the stack in its folder; called on the other machine.

        Returns:
            The worker's exit code, or the reason why this machine must not train the stack.
        """
        host = socket.gethostname()
        if code_version() != self.code:
            return (
                f"'{host}' has headtohead {code_version()}, this machine {self.code}; install the same version on both"
            )
        if self.device == "cuda" and not processors("cuda"):
            return no_gpu()
        if not self._has_folder():
            return (
                f"'{host}' has no access to this machine's folder '{self.stack.parents[2]}'; "
                "choose a folder that all machines share with --runs"
            )
        # A separate process frees its memory at its end, and ends when this process is killed.
        job = Job(self.stack, self.device, plugins=self.plugins)
        (code,) = (end.code for end in LocalLauncher().launch([job], workers=1) if end is not None)
        return code

    def _has_folder(self) -> bool:
        """Compare the folder's token with the sender's, since the same path may be another folder here."""
        try:
            return (self.stack / FOLDER_TOKEN).read_text() == self.token
        except OSError:
            return False


class ClusterLauncher(Launcher):
    """Trains stacks on other machines that share the runs folder. Override ``submit``, ``end`` and ``cancel``."""

    job_file = "slurm-job"
    """File in a stack's folder with the id of its job, by which a later command can find the job."""

    def submit(self, jobs: Sequence[Job], workers: int) -> Sequence[Any]:
        """Start ``RemoteJob.of(job).train()`` on another machine for each job and return a handle of each.

        ``workers`` jobs run at a time.
        """
        raise NotImplementedError

    def end(self, job: Job, handle: Any) -> int | str | None:
        """Return the result of ``RemoteJob.train``, or of ``ended`` if there is none; None while the job runs."""
        raise NotImplementedError

    def cancel(self, handle: Any) -> None:
        """Cancel a job."""
        raise NotImplementedError

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Submit every job.

        Raises:
            HeadToHeadError: If a machine refuses to train a stack.
        """
        waiting, running = deque(jobs), list[tuple[Job, Any]]()
        try:
            while waiting or running:
                free = min(workers - len(running), len(waiting), BATCH)
                if free > 0:
                    new = [waiting.popleft() for _ in range(free)]
                    running += zip(new, self.submit(new, workers), strict=True)
                ends = [(each, end) for each in running if (end := self.end(*each)) is not None]
                for each, end in ends:
                    running.remove(each)
                    self._remove_files(each[0])
                    if isinstance(end, str):
                        raise HeadToHeadError(f"node {end}")
                    yield Exit(each[0], end)
                if not ends:
                    yield None
                    time.sleep(POLL_SECONDS)
        finally:
            for job, handle in running:
                self.cancel(handle)
                self._remove_files(job)

    @staticmethod
    def ended(job: Job, reason: str, *, lost: bool = True) -> int:
        """Log why there is no result, and return the exit code of a ``lost`` process or machine, or of a failed job."""
        with (job.stack / "worker.log").open("a", encoding="utf-8") as log:
            log.write(" ".join(reason.split()) + "\n")
        return -signal.SIGKILL if lost else exits.FAILED

    def _remove_files(self, job: Job) -> None:
        for name in (FOLDER_TOKEN, self.job_file):
            (job.stack / name).unlink(missing_ok=True)


def exchange_folder(job: Job) -> Path:
    """Return the folder for pickles that a launcher exchanges with the jobs of a study.

    It is in the user's cache, because unpickling a file from an untrusted runs folder could execute any code.
    """
    study = hashlib.sha256(str(job.stack.parent.resolve()).encode()).hexdigest()[:16]
    folder = cache_root() / "launchers" / study
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


@cache
def code_version() -> str:
    """Return the version and a hash of the installed code, which must be equal on both machines."""
    code_hash = hashlib.sha256()
    for package in ("headtohead", BUILT_IN[0].partition(".")[0]):
        root = Path(importlib.import_module(package).__path__[0])
        for path in sorted(root.rglob("*.py")):
            code_hash.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return f"{versions()['headtohead']} (code {code_hash.hexdigest()[:8]})"
