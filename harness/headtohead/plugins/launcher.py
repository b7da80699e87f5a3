"""Launchers: base class of what starts worker processes, locally or on other machines.

Parent and workers communicate through run directories alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar

from headtohead.plugins.entry import BaseOptions, Entry

SMALL_GPU = 16 * 2**30
"""Assumed memory in bytes of a GPU of another machine."""


@dataclass(frozen=True)
class WorkerPlugins:
    """Plugins that a worker loads besides built-ins and entry points.

    A launcher passes them to its workers directly: as an argument, through a pipe or a queue. They
    are code, so they are never written to a study's folder and never read from it.

    Args:
        files: Path and source of each plugin file.
        objects: Pickle of the plugins registered in Python; empty if there are none.
        modules: Import names of installed plugins that the experiment file selects.
        path: Folders in which this process finds modules.
    """

    files: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)
    objects: bytes = field(default=b"", repr=False)
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """A stack to train.

    Args:
        stack: Folder of the stack. Its ``stack.json`` contains all that a worker needs except code.
        device: A torch device type. A launcher with several GPUs selects a GPU.
        threads: CPU threads of the worker.
        plugins: Plugins that the worker loads.
    """

    stack: Path
    device: str
    threads: int = 1
    plugins: WorkerPlugins = field(default_factory=WorkerPlugins)


@dataclass(frozen=True)
class Exit:
    """The end of a worker process: its exit code, negative for a signal as in ``subprocess``."""

    job: Job
    code: int


def watch_nothing() -> None:
    """Show nothing of a stack in training."""


class Launcher(Entry):
    """Starts workers for jobs and reports their exits.

    Override ``launch``. The other methods describe this machine; a launcher for other machines
    overrides ``gpus``, ``share`` and ``memory`` too. Calls in order:

    1. ``warm``, while the study is planned
    2. ``gpus``, ``share`` and ``memory``, when stacks are formed
    3. ``launch``, once per command if there are runs to train
    """

    in_process: ClassVar[bool] = False
    """Whether stacks train in the process of the command, so that no progress bar may redraw the terminal."""

    watch: Callable[[], None]
    """Shows the progress; a launcher with ``in_process`` calls it while a stack trains, a few times per second."""

    def __init__(self, options: BaseOptions | None = None) -> None:
        self.options = options if options is not None else self.Options()
        self.watch = watch_nothing

    def warm(self) -> None:
        """Prepare workers while the study is planned, to shorten the first start.

        Called after the experiment file was validated. ``launch`` may not follow.
        """

    def gpus(self) -> int:
        """Return the number of GPUs; with 0, stacks train on CPUs."""
        import torch

        return torch.cuda.device_count() if torch.cuda.is_available() else 0

    def share(
        self, device: str, stacks: int, workers: int | None, threads: int | None
    ) -> tuple[int, int]:
        """Return the number of concurrent stacks and the CPU threads of each.

        ``workers`` and ``threads`` are the user's ``--workers`` and ``--threads``, or None.
        """
        gpus = self.gpus() if device == "cuda" else 0
        return self.divide(cpu_cores(), gpus, stacks, workers, threads)

    @staticmethod
    def divide(
        cores: int, gpus: int, stacks: int, workers: int | None, threads: int | None
    ) -> tuple[int, int]:
        """Return the number of concurrent stacks and the CPU threads of each, for given hardware.

        On a CPU, small models train fastest with a single-threaded process per core
        (benchmarks/results.md). Fewer stacks than cores divide the cores among themselves.
        Every GPU has a single process.
        """
        workers = workers or gpus or max(1, min(cores, stacks))
        return workers, threads or max(1, cores // max(1, min(workers, max(stacks, 1))))

    def memory(self, device: str, workers: int) -> int:
        """Return the bytes that each of ``workers`` concurrent stacks may use.

        On ``device`` "cuda" this is GPU memory. The planner limits stacks to this size. A stack
        that still runs out of memory is halved.
        """
        if device == "cuda":
            return gpu_memory() // math.ceil(workers / max(1, self.gpus()))
        return machine_memory() // max(1, workers)

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Run every job, at most ``workers`` concurrently, and yield each exit when it happens.

        Between exits, yield None a few times per second, so that the caller can show progress.
        Closing the iterator must end all running workers.
        """
        raise NotImplementedError


def cpu_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_memory() -> int:
    """Return the memory in bytes of this machine's smallest GPU, or ``SMALL_GPU`` without a GPU."""
    import torch

    gpus = range(torch.cuda.device_count())
    sizes = [torch.cuda.get_device_properties(gpu).total_memory for gpu in gpus]
    return min(sizes, default=SMALL_GPU)


@cache
def machine_memory() -> int:
    """Return the memory in bytes of this machine, or of the container of this process; measured once."""
    import psutil

    limits = [int(psutil.virtual_memory().total)]
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup 2 and 1
        with suppress(OSError, ValueError):  # no such file, or no limit: max
            limits.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min(limits)
