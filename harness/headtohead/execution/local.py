"""The local launcher: one process per stack, forked from a server that has torch loaded.

Forking from a loaded server takes some 20 ms instead of the second that importing torch takes, and
what a stack held on the GPU is free again when its process ends.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from headtohead.errors import HeadToHeadError
from headtohead.plugins.launcher import Exit, Job, Launcher, WorkerPlugins
from headtohead.storage import exits

POLL_SECONDS = 0.2

PRELOAD = ["headtohead.execution.preload"]
"""What the server loads before it forks."""


class LocalLauncher(Launcher):
    """Runs stacks on this machine, at most ``workers`` at a time; each sees one GPU, in turn."""

    def warm(self) -> None:
        """Start the server that workers are forked from; it loads torch meanwhile."""
        multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOAD)
        with hidden_main():
            forkserver.ensure_running()

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job in a process of its own."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        waiting = deque(jobs)
        running: dict[int, tuple[Job, BaseProcess, int]] = {}
        free = list(range(workers))
        # Workers hold the reading end: when this process dies, however it dies, they see its end.
        alive, held = context.Pipe(duplex=False)
        try:
            while waiting or running:
                while waiting and free:
                    job, slot = waiting.popleft(), free.pop(0)
                    process = context.Process(
                        target=_main, args=(job.stack, job.device, job.plugins, _environment(job.device, slot), alive)
                    )
                    with hidden_main():
                        process.start()
                    running[process.sentinel] = (job, process, slot)
                ended = wait(list(running), timeout=POLL_SECONDS)
                for sentinel in ended:
                    assert isinstance(sentinel, int)
                    job, worker, slot = running.pop(sentinel)
                    worker.join()
                    code = worker.exitcode if worker.exitcode is not None else 1
                    worker.close()
                    free.append(slot)
                    yield Exit(job, code)
                if not ended:
                    yield None
        finally:
            for _, worker, _ in running.values():
                worker.kill()
                worker.join()
            held.close()
            alive.close()


def _environment(device: str, slot: int) -> dict[str, str]:
    """Return the environment of the worker in a slot, which sees one GPU: they take turns.

    A worker that saw all of them would allocate on the first one too, whichever it trains on.

    Raises:
        HeadToHeadError: If there is no GPU for it.
    """
    environment = dict(os.environ)
    if device == "cuda":
        import torch

        count = torch.cuda.device_count()
        if not count:
            raise HeadToHeadError(f"node {no_gpu()}")
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(number) for number in range(count)]
        environment["CUDA_VISIBLE_DEVICES"] = names[slot % count].strip()
    return environment


def no_gpu() -> str:
    """Return this machine's name and the fault: a stack was sent to its GPU, which is not there."""
    import torch

    return (
        f"'{socket.gethostname()}' has no GPU that torch {torch.__version__} can use; "
        "install torch with CUDA there, or type --device cpu"
    )


def _main(stack: Path, device: str, sent: WorkerPlugins, environment: dict[str, str], alive: Connection) -> None:
    """Entry of the worker process.

    The server may be older than this study: what its parent may use now, such as the GPUs in
    CUDA_VISIBLE_DEVICES, stands in the parent's environment and not in the server's.
    """
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
    threading.Thread(target=_die_with_parent, args=(alive,), daemon=True).start()
    from headtohead.execution.worker import work

    code = work(stack, device, sent)
    # A full disk has its exit code; what was still to be logged changes nothing.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    # Skips the interpreter's clean-up: everything is written, and threads may be waiting.
    os._exit(code)


def _die_with_parent(alive: Connection) -> None:
    alive.poll(None)
    os._exit(1)


@contextmanager
def hidden_main() -> Iterator[None]:
    """Keep workers from running the user's script again.

    multiprocessing imports the main module in every child, for functions defined there; the
    worker's is not, and a script without an ``if __name__`` guard would start the study anew.
    """
    main = sys.modules["__main__"]
    hidden = {name: main.__dict__.pop(name) for name in ("__file__",) if name in main.__dict__}
    spec, main.__spec__ = main.__spec__, None
    try:
        yield
    finally:
        main.__dict__.update(hidden)
        main.__spec__ = spec
