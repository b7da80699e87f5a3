"""The launchers of this machine: a process per stack, forked from a server that has imported torch, or no process.

A fork takes about 20 ms, an import of torch a second. When the process of a stack ends, its GPU memory is free.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from functools import cache
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from headtohead import children, logs
from headtohead.errors import HeadToHeadError
from headtohead.plugins.launcher import Exit, Job, Launcher, WorkerPlugins
from headtohead.storage import exits

POLL_SECONDS = 0.2
STARTS = 3
"""Attempts to start a worker."""

RETRY_SECONDS = 0.25
"""Delay before a new attempt, times the number of failed ones: a killed server exists until the system has ended it."""

UNKNOWN = 255
"""Exit code that multiprocessing reports if the fork server has ended, whatever the worker does."""

PRELOAD = ["headtohead.execution.preload"]
"""Modules that the server imports before it forks."""


class _Running(NamedTuple):
    """A job in training: its process, the slot of the process, and the process id of its fork server."""

    job: Job
    process: BaseProcess
    slot: int
    server: int | None


class LocalLauncher(Launcher):
    """Trains stacks on this machine, at most ``workers`` at a time; GPUs are assigned in turn."""

    def warm(self) -> None:
        """Start the fork server, which imports torch in the background."""
        multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOAD)
        with hidden_main():
            _start_server()

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job in its own process, at most ``workers`` at a time; yield each exit.

        The iterator yields None if no process has ended for a while, so that the caller can do other work. Jobs
        start in their order. If the fork server is killed, the exit of a job is unknown and yielded as BUSY, because
        its process may still train. If the iterator is closed or raises, the processes without an exit are killed.

        Args:
            jobs: The stacks to train.
            workers: Number of concurrent processes, at least 1.

        Raises:
            HeadToHeadError: If a process cannot be started, or a job needs a GPU and this machine has none.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        waiting = deque(jobs)
        running: dict[int, _Running] = {}  # by the sentinel of the process
        free_slots = list(range(workers))
        try:
            while waiting or running:
                while waiting and free_slots:
                    job = waiting.popleft()
                    slot = free_slots.pop(0)
                    environment = _environment(job.device, slot)
                    alive, _ = _lifetime()
                    arguments = (job.stack, job.device, job.plugins, environment, alive)
                    process = _start(context, arguments)
                    # multiprocessing has no public name for the process of the server.
                    server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
                    running[process.sentinel] = _Running(job, process, slot, server)
                ended = wait(list(running), timeout=POLL_SECONDS)
                for sentinel in ended:
                    assert isinstance(sentinel, int)
                    worker = running.pop(sentinel)
                    worker.process.join()
                    code = worker.process.exitcode
                    assert code is not None, "the process has ended"
                    if code == UNKNOWN and not _is_running(worker.server):
                        # The server was killed. Its workers continue, and their leases decide who trains the stack.
                        code = exits.BUSY
                    worker.process.close()
                    free_slots.append(worker.slot)
                    yield Exit(worker.job, code)
                if not ended:
                    yield None
        finally:
            for worker in running.values():
                worker.process.kill()
                worker.process.join()


class InlineLauncher(Launcher):
    """Trains stacks one after another in the process of the command, where a debugger works in plugins.

    Standard error shows what ``worker.log`` gets, such as the traceback of an error.
    """

    in_process = True

    def share(
        self, device: str, stacks: int, workers: int | None, threads: int | None
    ) -> tuple[int, int]:
        """Return one stack at a time with all cores."""
        return super().share(device, 1, 1, threads)

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Train every job in this process, one after another, and yield each exit; ``workers`` has no effect.

        While a job trains, standard error is written to its ``worker.log`` too.

        Raises:
            OSError: If a log cannot be opened.
        """
        from headtohead.execution.worker import work

        for job in jobs:
            with (
                (job.stack / "worker.log").open("a", encoding="utf-8") as log,
                redirect_stderr(_Both(sys.stderr, log)),
            ):
                code = work(job.stack, job.device, WorkerPlugins(), self.watch)
            yield Exit(job, code)


class _Both(io.TextIOBase):
    """Writes text to two streams."""

    def __init__(self, *streams: Any) -> None:
        self.streams = streams

    def write(self, text: str) -> int:
        for stream in self.streams:
            stream.write(text)
            stream.flush()
        return len(text)


@cache
def _lifetime() -> tuple[Connection, Connection]:
    """Return a pipe of which workers hold the read end; this process closes the write end only by ending.

    A worker ends with its parent, but not with the round (a call of `launch`) that started it: if the fork server is
    killed, the parent cannot wait for its workers, and starts the next round while they train.
    """
    reader, writer = multiprocessing.get_context("forkserver").Pipe(duplex=False)
    return reader, writer


def _start(context: ForkServerContext, arguments: tuple[Any, ...]) -> BaseProcess:
    """Start the process of a stack and return it; start it again if the fork server is killed meanwhile.

    Args:
        context: The context of the fork server.
        arguments: Those of `_main`.

    Raises:
        HeadToHeadError: If the server ends at every one of ``STARTS`` attempts.
    """
    for attempt in range(STARTS):
        if attempt:
            time.sleep(attempt * RETRY_SECONDS)
        process = context.Process(target=_main, args=arguments)
        with hidden_main(), suppress(EOFError, ConnectionError):
            _start_server()
            process.start()
            return process
    raise HeadToHeadError(
        f"the server that forks workers ended {STARTS} times while it started one; check the limits of memory and "
        "processes (ulimit -a), then run the same command; finished runs are kept"
    )


def _start_server() -> None:
    """Start the fork server unless it runs.

    Ctrl-C reaches every process of the terminal. The server inherits that the signal is blocked, and unblocks it once
    it ignores it (`PRELOAD`), so that an earlier Ctrl-C does not end it with a traceback.
    """
    # It unblocks the signal when it starts its own process.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_running(pid: int | None) -> bool:
    try:
        return pid is not None and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _environment(device: str, slot: int) -> dict[str, str]:
    """Return the environment of the worker in a slot, with a single visible GPU.

    It is the environment of this process, with the settings of the log and a safe import path. A worker with several
    visible GPUs would also allocate memory on the first GPU. The GPUs, those of CUDA_VISIBLE_DEVICES if it is set, are
    assigned to slots in turn. On ``device`` "cpu", CUDA_VISIBLE_DEVICES is unchanged.

    Raises:
        HeadToHeadError: If ``device`` is "cuda" and torch can use no GPU of this machine.
    """
    environment = {**os.environ, **logs.environment(), **children.SAFE_PATH}
    if device == "cuda":
        import torch

        count = torch.cuda.device_count()
        if not count:
            raise HeadToHeadError(
                f"'{socket.gethostname()}' has no GPU that torch {torch.__version__} can use; "
                "install torch with CUDA there, or use --device cpu"
            )
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(number) for number in range(count)]
        environment["CUDA_VISIBLE_DEVICES"] = names[slot % count].strip()
    return environment


def _main(
    stack: Path, device: str, plugins: WorkerPlugins, environment: dict[str, str], alive: Connection
) -> None:
    """Train a stack, and end the process with the exit code of `work`; the entry point of a worker.

    The worker takes over its parent's environment, because the server's may be outdated, for example
    CUDA_VISIBLE_DEVICES. Its standard output and error go to ``worker.log`` in the stack's folder. It ends without
    training with the code BUSY if the folder does not exist, and with DISK if the log cannot be opened. It ends at once
    with 1 when its parent ends.

    Args:
        stack: The stack's folder.
        device: ``"cpu"`` or ``"cuda"``.
        plugins: The plugins that the parent loaded.
        environment: All environment variables of the worker.
        alive: The end of a pipe that is readable once the parent ends.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        log = os.open(stack / "worker.log", flags, 0o644)
    except FileNotFoundError:  # another process has split or archived the stack
        os._exit(exits.BUSY)
    except OSError:
        os._exit(exits.DISK)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logs.configure_worker()
    threading.Thread(target=_die_with_parent, args=(alive,), daemon=True).start()
    from headtohead.execution.worker import work

    code = work(stack, device, plugins)
    # A full disk already has its exit code; unflushed log text does not matter.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    # Skip the interpreter's clean-up: all files are written, and threads may be blocked.
    os._exit(code)


def _die_with_parent(alive: Connection) -> None:
    """Wait until the parent ends, and end this process with 1."""
    alive.poll(None)
    os._exit(1)


@contextmanager
def hidden_main() -> Iterator[None]:
    """Prevent workers from importing the user's script, and the fork server from importing the working directory.

    multiprocessing imports the main module in every child, in case the target function is defined there. A script
    without an ``if __name__`` guard would start the experiment again. In the block, the main module has no ``__file__``
    and no ``__spec__``; both are restored, also after an error.
    """
    main = sys.modules["__main__"]
    has_file = "__file__" in main.__dict__
    file = main.__dict__.pop("__file__", None)
    spec = main.__spec__
    main.__spec__ = None
    try:
        with children.without_working_directory():
            yield
    finally:
        if has_file:
            main.__dict__["__file__"] = file
        main.__spec__ = spec
