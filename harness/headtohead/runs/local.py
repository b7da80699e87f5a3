"""The local launcher: one process per stack, forked from a server that has torch loaded.

Forking from a loaded server takes some 20 ms instead of the second that importing torch takes, and
what a stack held on the GPU is free again when its process ends.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from headtohead.families.launcher import Exit, Job, Launcher

POLL_SECONDS = 0.2

PRELOAD = ["headtohead.runs.preload"]
"""What the server loads before it forks."""


class LocalLauncher(Launcher):
    """Runs stacks on this machine, at most ``workers`` at a time; GPUs are handed out in turn."""

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
                        target=_main,
                        args=(job.stack, pick_device(job.device, slot), dict(os.environ), alive),
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


def pick_device(device: str, slot: int) -> str:
    """Return the device of a slot: GPUs in turn, or the CPU."""
    if device != "cuda":
        return device
    import torch

    return f"cuda:{slot % torch.cuda.device_count()}"


def _main(stack: Path, device: str, environment: dict[str, str], alive: Connection) -> None:
    """Entry of the worker process.

    The server may be older than this study: what its parent may use now, such as the GPUs in
    CUDA_VISIBLE_DEVICES, stands in the parent's environment and not in the server's.
    """
    os.environ.clear()
    os.environ.update(environment)
    log = os.open(stack / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    threading.Thread(target=_die_with_parent, args=(alive,), daemon=True).start()
    from headtohead.runs.worker import work

    code = work(stack, device)
    sys.stdout.flush()
    sys.stderr.flush()
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
