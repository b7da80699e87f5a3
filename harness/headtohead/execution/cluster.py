"""Training of stacks on other machines that share the runs folder.

Launchers for clusters differ only in how they call a function on another machine, detect its end and cancel it.
"""

from __future__ import annotations

import importlib
import signal
import socket
import time
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path

from headtohead import files
from headtohead.children import without_working_directory
from headtohead.config.versions import versions
from headtohead.errors import HeadToHeadError
from headtohead.execution.local import POLL_SECONDS, LocalLauncher
from headtohead.plugins.built_in import MODULES
from headtohead.plugins.launcher import Exit, Job, Launcher

FOLDER_TOKEN = "folder-token"
"""File in a stack's folder with a random token, by which another machine verifies that it is the same folder."""


class ClusterLauncher(Launcher):
    """Trains stacks on other machines that share the runs folder. Override ``run``."""

    def run(self, job: Job, workers: int) -> Generator[int | str | None]:
        """Call ``train(*arguments(job))`` on another machine, yield None while it runs, then its result or ``lost``.

        ``workers`` calls run at a time. Closing the generator must cancel the call.
        """
        raise NotImplementedError

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job on another machine, at most ``workers`` at a time; yield each exit, and None between exits.

        If the iterator is closed or raises, all calls that have not ended are cancelled.

        Raises:
            HeadToHeadError: If a machine refuses to train a stack. Errors of `run` are raised unchanged.
        """
        calls = {job: self.run(job, workers) for job in jobs}  # each starts at its first step
        try:
            while calls:
                ends = _ended(dict(islice(calls.items(), workers)))
                for job, end in ends.items():
                    calls.pop(job).close()
                    if isinstance(end, str):
                        raise HeadToHeadError(f"node {end}")
                    yield Exit(job, end)
                if not ends:
                    yield None
                    time.sleep(POLL_SECONDS)
        finally:
            for call in calls.values():
                call.close()

    @staticmethod
    def arguments(job: Job) -> tuple[Job, str, str]:
        """Write a token into the stack's folder, and return the arguments of ``train``."""
        token = uuid.uuid4().hex
        files.write_text(job.stack / FOLDER_TOKEN, token)
        return replace(job, stack=job.stack.resolve()), token, code_version()

    @staticmethod
    def train(job: Job, token: str, code: str) -> int | str:
        """Train a stack in its folder and return the worker's exit code; runs on the remote machine.

        A process of the remote machine trains it on ``job.device``.

        Args:
            job: The stack, its device and the plugins.
            token: The content of the stack's `FOLDER_TOKEN` on the calling machine.
            code: The `code_version` of the calling machine.

        Returns:
            The worker's exit code, or as a text the reason why the remote machine does not train the stack: another
            version of headtohead, another folder at the same path, no GPU, or no process could be started. The calling
            machine, *this machine* in the text, prints it.
        """
        host = socket.gethostname()
        if code_version() != code:
            return f"'{host}' has headtohead {code_version()}, this machine {code}; install the same version on both"
        # The same path may be another folder here.
        if files.last_line(job.stack / FOLDER_TOKEN) != token:
            return (
                f"'{host}' has no access to this machine's folder '{job.stack.parents[2]}'; "
                "choose a folder that all machines share with --runs"
            )
        try:
            # A process of its own returns its memory, and the launcher kills it when this process is killed.
            ends = [end for end in LocalLauncher().launch([job], workers=1) if end is not None]
        except HeadToHeadError as error:
            return str(error)
        return ends[0].code

    @staticmethod
    def lost(job: Job, reason: str) -> int:
        """Log why there is no result, and return the exit code of a killed process."""
        with (job.stack / "worker.log").open("a", encoding="utf-8") as log:
            log.write(" ".join(reason.split()) + "\n")
        return -signal.SIGKILL


def _ended(calls: Mapping[Job, Generator[int | str | None]]) -> dict[Job, int | str]:
    """Advance every call, and return the results of those that have ended."""
    ends = {}
    with without_working_directory():
        for job, call in calls.items():
            end = next(call)
            if end is not None:
                ends[job] = end
    return ends


@cache
def code_version() -> str:
    """Return the version and a hash of the installed code, which must be equal on both machines."""
    code = b""
    for name in ("headtohead", MODULES[0].partition(".")[0]):
        folder = Path(importlib.import_module(name).__path__[0])
        code += b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))
    return f"{versions()['headtohead']} (code {sha256(code).hexdigest()[:8]})"
